"""Where a delta of HubSpot stands: first what has changed, then what was put into the bin."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from integrations.providers.hubspot.objects import ObjectType, record_properties
from integrations.providers.listing_response import UnreadableResponse
from integrations.providers.values import record_id, time_at

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SearchCursor:
    """``since`` is a millisecond of the epoch, from which on is read.

    ``beyond`` an id: the records of that one millisecond, by id. ``archived``: the bin, from after ``beyond``.
    """

    since: int
    beyond: str | None = None
    archived: bool = False

    @classmethod
    def at(cls, since: datetime) -> Self:
        return cls(_ms(since))

    @classmethod
    def parse(cls, following: str) -> Self:
        return cls(**json.loads(following))

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    def archive(self, beyond: str | None = None) -> SearchCursor:
        return SearchCursor(self.since, beyond, archived=True)

    def includes(self, when: datetime) -> bool:
        return _ms(when) >= self.since

    def request(self, kind: ObjectType) -> dict[str, Any]:
        """Return the filters and the one sort rule, more are not allowed, of the next search."""
        when, order = [_filter(kind.modified, "GTE", str(self.since))], kind.modified
        if self.beyond is not None:
            when += [_filter(kind.modified, "LTE", str(self.since)), _filter("hs_object_id", "GT", self.beyond)]
            order = "hs_object_id"
        sorts = [{"propertyName": order, "direction": "ASCENDING"}]
        return {"filterGroups": [{"filters": when}], "sorts": sorts}

    def after(self, kind: ObjectType, rows: Sequence[Any], *, more: bool) -> SearchCursor | None:
        """Return where the next search begins; None after the last.

        Never the provider's own ``after``: it counts, so that a record which changes meanwhile, and goes to the end,
        moves another one to a place that was read; and it ends at 10,000.
        """
        if not more:
            return None if self.beyond is None else SearchCursor(self.since + 1)
        if self.beyond is not None:
            return SearchCursor(self.since, _further(self.beyond, rows))
        changed = _changed(kind, rows)
        # A page full of one millisecond, as an import leaves them: only their ids tell them apart.
        return SearchCursor(changed) if changed > self.since else SearchCursor(self.since, "0")


def _filter(name: str, operator: str, value: str) -> dict[str, str]:
    return {"propertyName": name, "operator": operator, "value": value}


def _further(beyond: str, rows: Sequence[Any]) -> str:
    """Return the last id; raise ``Unreadable`` when it is not beyond: the same page would come without end."""
    for row in reversed(rows):
        try:
            found = record_id(row, "id")
            if int(found) > int(beyond):
                return found
        except ValueError:
            continue
    raise UnreadableResponse


def _changed(kind: ObjectType, rows: Sequence[Any]) -> int:
    """Return when the last of the rows changed that tells it."""
    for row in reversed(rows):
        try:
            found = time_at(record_properties(row), kind.modified) or time_at(row, "updatedAt")
        except ValueError:
            continue
        if found is not None:
            return _ms(found)
    raise UnreadableResponse


def _ms(when: datetime) -> int:
    """Return the millisecond that a time is in: what HubSpot's filters compare, whatever it shows beyond."""
    return (when - EPOCH) // timedelta(milliseconds=1)
