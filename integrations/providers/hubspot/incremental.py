"""Cursor of a HubSpot delta: first the records changed since, by searches, then the archived ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from integrations.providers.hubspot.objects import ObjectType, record_properties
from integrations.providers.payload import UnreadableResponse, id_or_none, time_at

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SearchCursor:
    """``since`` is the millisecond of the epoch from which records are read.

    ``beyond`` is an id: the records of that one millisecond, by id. ``archived``: the archive, from after ``beyond``.
    """

    since: int
    beyond: str | None = None
    archived: bool = False

    @classmethod
    def at(cls, since: datetime) -> Self:
        return cls(_milliseconds(since))

    @classmethod
    def parse(cls, following: str) -> Self:
        return cls(**json.loads(following))

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    def archive(self, beyond: str | None = None) -> SearchCursor:
        return SearchCursor(self.since, beyond, archived=True)

    def includes(self, time: datetime) -> bool:
        return _milliseconds(time) >= self.since

    def request(self, kind: ObjectType) -> dict[str, Any]:
        """Return the filters and the one sort rule, more are not allowed, of the next search."""
        filters, order = [_filter(kind.modified, "GTE", str(self.since))], kind.modified
        if self.beyond is not None:
            filters += [_filter(kind.modified, "LTE", str(self.since)), _filter("hs_object_id", "GT", self.beyond)]
            order = "hs_object_id"
        sorts = [{"propertyName": order, "direction": "ASCENDING"}]
        return {"filterGroups": [{"filters": filters}], "sorts": sorts}

    def after(self, kind: ObjectType, rows: Sequence[Any], *, more: bool) -> SearchCursor | None:
        """Return the cursor of the next search; None after the last.

        Never the provider's own ``after``: it is an offset, so that a record which changes meanwhile, and goes to the
        end, moves another one to a place already read; and it ends at 10,000. Raises ``UnreadableResponse`` for rows
        that do not lead further: the same page would come without end.
        """
        if not more:
            return None if self.beyond is None else SearchCursor(self.since + 1)
        if self.beyond is not None:
            for row in reversed(rows):
                id = id_or_none(row, "id")
                if id is not None and id.isdecimal() and int(id) > int(self.beyond):
                    return SearchCursor(self.since, id)
            raise UnreadableResponse
        changed = _last_change(kind, rows)
        # A page full of one millisecond, as an import leaves them: only their ids tell them apart.
        return SearchCursor(changed) if changed > self.since else SearchCursor(self.since, "0")


def _filter(name: str, operator: str, value: str) -> dict[str, str]:
    return {"propertyName": name, "operator": operator, "value": value}


def _last_change(kind: ObjectType, rows: Sequence[Any]) -> int:
    """Return when the last row that has a time changed."""
    for row in reversed(rows):
        try:
            changed = time_at(record_properties(row), kind.modified) or time_at(row, "updatedAt")
        except ValueError:
            continue
        if changed is not None:
            return _milliseconds(changed)
    raise UnreadableResponse


def _milliseconds(time: datetime) -> int:
    """Return the millisecond of a time: HubSpot's filters compare no finer, whatever its responses show."""
    return (time - EPOCH) // timedelta(milliseconds=1)
