"""HubSpot over its REST API, and the cursor of its deltas: changed records, by searches, then archived ones.

developers.hubspot.com/docs/api-reference/crm-contacts-v3/guide and its neighbours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings

from integrations.models import ConnectedSource, IngestionJob
from integrations.providers import payload_fields
from integrations.providers.hubspot import mapping
from integrations.providers.hubspot.mapping import OBJECT_TYPES, STREAMS, ObjectType
from integrations.providers.interface import McpClient, Page, RawItem, Stream, Transport, stream_for
from integrations.providers.payload_fields import UnreadableResponse, page_size, parse_items, required_list, time_at

MOST = 100  # records a page
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NONE_FOUND = "OBJECT_NOT_FOUND"  # of a deal without a company, or one that was deleted just now


@dataclass(frozen=True, slots=True)
class SearchCursor:
    """``since`` is the millisecond of the epoch from which records are read.

    ``beyond`` is an id: the records of that one millisecond, by id. ``archived``: the archive, from after ``beyond``.
    """

    since: int
    beyond: str | None = None
    archived: bool = False

    def __str__(self) -> str:
        return json.dumps(asdict(self))

    def request(self, kind: ObjectType) -> dict[str, Any]:
        """Return the filters and the one sort rule, more are not allowed, of the next search."""
        filters, order = [_filter(kind.modified, "GTE", str(self.since))], kind.modified
        if self.beyond is not None:
            filters += [_filter(kind.modified, "LTE", str(self.since)), _filter("hs_object_id", "GT", self.beyond)]
            order = "hs_object_id"
        sorts = [{"propertyName": order, "direction": "ASCENDING"}]
        return {"filterGroups": [{"filters": filters}], "sorts": sorts}

    def next_cursor(self, kind: ObjectType, rows: Sequence[Any], *, more: bool) -> SearchCursor | None:
        """Return the cursor of the next search; None after the last.

        Never the provider's own ``after``: it is an offset, so that a record which changes meanwhile, and goes to the
        end, moves another one to a place already read; and it ends at 10,000. Raises ``UnreadableResponse`` for rows
        that do not lead further: the same page would come without end.
        """
        if not more:
            return None if self.beyond is None else SearchCursor(self.since + 1)
        if self.beyond is not None:
            for row in reversed(rows):
                id = payload_fields.id_or_none(row, "id")
                if id is not None and id.isdecimal() and int(id) > int(self.beyond):
                    return SearchCursor(self.since, id)
            raise UnreadableResponse
        changed = _last_change(kind, rows)
        # A page full of one millisecond, as an import leaves them: only their ids tell them apart.
        return SearchCursor(changed) if changed > self.since else SearchCursor(self.since, "0")


class Client(McpClient):
    provider = "hubspot"

    def __init__(self, source: ConnectedSource, transport: Transport) -> None:
        super().__init__(source, transport)
        config = settings.CONNECTORS["hubspot"]
        self._objects, self._associations = config["objects_path"], config["associations_path"]

    def begin(self, kind: str) -> dict[str, Any]:
        return {stream.name: payload_fields.now_cursor() for stream in STREAMS}

    def page(self, stream: Stream, kind: str, since: Any, page_token: str | None) -> Page:
        object_type = OBJECT_TYPES[stream.name]
        if kind == IngestionJob.Kind.FULL:
            return self._list(object_type, {"after": page_token})
        if since is None:
            return Page([], expired=True)
        start = SearchCursor(_milliseconds(payload_fields.overlap_start(since)))
        cursor = SearchCursor(**json.loads(page_token)) if page_token else start
        return self._list_archived(object_type, cursor) if cursor.archived else self._search(object_type, start, cursor)

    def list(self, method: str, params: Mapping[str, Any] | None = None) -> Iterator[RawItem]:
        kind, after = OBJECT_TYPES[stream_for(STREAMS, method).name], None
        while True:
            page = self._list(kind, {**(params or {}), "after": after})
            yield from page.items
            after = page.next_page
            if after is None:
                return

    def get(self, method: str, id: str) -> RawItem:
        kind = OBJECT_TYPES[stream_for(STREAMS, method).name]
        path = f"{self._objects}/{kind.name}/{id.removeprefix(f'{kind.singular}:')}"
        params = _object_params(kind)
        body = self.transport.json("GET", path, operation=f"get-{kind.singular}", params=params)
        return mapping.parse_item(kind, body)

    def _list(self, kind: ObjectType, params: Mapping[str, Any]) -> Page:
        path, params = f"{self._objects}/{kind.name}", {"limit": page_size(MOST), **_object_params(kind), **params}
        body = self.transport.json("GET", path, operation=f"list-{kind.name}", params=params)
        items, failed = parse_items(kind, required_list(body, "results"), mapping.parse_item, "id")
        return Page(items, next_page=_next(body), failed=failed)

    def _search(self, kind: ObjectType, start: SearchCursor, cursor: SearchCursor) -> Page:
        request = {**cursor.request(kind), "properties": kind.requested_properties, "limit": page_size(MOST)}
        path = f"{self._objects}/{kind.name}/search"
        body = self.transport.json("POST", path, operation=f"search-{kind.name}", body=request)
        rows = required_list(body, "results")
        associated = self._with_associations(kind, rows)
        items, failed = parse_items(kind, associated, mapping.parse_item, "id")
        merged = [deletion for winner in items for deletion in mapping.merged_items(kind, winner)]
        page_token = cursor.next_cursor(kind, rows, more=bool(rows and _next(body)))
        return Page([*items, *merged], next_page=str(page_token or replace(start, archived=True)), failed=failed)

    def _with_associations(self, kind: ObjectType, rows: Sequence[Any]) -> Sequence[Any]:
        """Return the rows in the form of a listing: a search omits the associations."""
        inputs = [{"id": row["id"]} for row in rows if isinstance(row, Mapping) and isinstance(row.get("id"), str)]
        if kind.associations is None or not inputs:
            return rows
        path = f"{self._associations}/{kind.name}/{kind.associations}/batch/read"
        body = self.transport.json("POST", path, operation="read-associations", body={"inputs": inputs})
        companies = dict(_associations(required_list(body, "results")))
        if any(payload_fields.text_at(each, "category") != NONE_FOUND for each in body.get("errors") or []):
            raise UnreadableResponse  # a 207 with some deals only: the others would seem to have no company
        associated = []
        for row in rows:
            id = row.get("id") if isinstance(row, Mapping) else None
            results = companies.get(id) if isinstance(id, str) else None
            associated.append({**row, "associations": {kind.associations: {"results": results}}} if results else row)
        return associated

    def _list_archived(self, kind: ObjectType, cursor: SearchCursor) -> Page:
        """Return the records archived since; the archive, of 90 days, cannot be filtered by time."""
        params = {"limit": page_size(MOST), "archived": "true", "properties": "hs_object_id", "after": cursor.beyond}
        path = f"{self._objects}/{kind.name}"
        body = self.transport.json("GET", path, operation=f"bin-{kind.name}", params=params)
        items, failed = parse_items(kind, required_list(body, "results"), mapping.archived_item, "id")
        times = [(each, each.source_updated_at) for each in items]
        recent = [each for each, archived_at in times if not archived_at or _milliseconds(archived_at) >= cursor.since]
        after = _next(body)
        return Page(recent, next_page=str(replace(cursor, beyond=after)) if after else None, failed=failed)


def _object_params(kind: ObjectType) -> dict[str, Any]:
    return {"properties": ",".join(kind.requested_properties), "associations": kind.associations}


def _next(body: Mapping[str, Any]) -> str | None:
    paging = body.get("paging")
    next_page = paging.get("next") if isinstance(paging, Mapping) else None
    after = next_page.get("after") if isinstance(next_page, Mapping) else None
    return str(after) if after else None


def _associations(results: Sequence[Any]) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield each deal's companies in the form of a listing."""
    try:
        for deal in results:
            companies = [
                {"id": str(to["toObjectId"]), "type": name}
                for to in deal["to"]
                for type, name in mapping.COMPANY_TYPES.items()
                if any(each["typeId"] == type for each in to["associationTypes"])
            ]
            yield str(deal["from"]["id"]), companies
    except (KeyError, TypeError):
        raise UnreadableResponse from None


def _filter(name: str, operator: str, value: str) -> dict[str, str]:
    return {"propertyName": name, "operator": operator, "value": value}


def _last_change(kind: ObjectType, rows: Sequence[Any]) -> int:
    for row in reversed(rows):
        try:
            changed = time_at(mapping.record_properties(row), kind.modified) or time_at(row, "updatedAt")
        except ValueError:
            continue
        if changed is not None:
            return _milliseconds(changed)
    raise UnreadableResponse


def _milliseconds(time: datetime) -> int:
    """Return the millisecond of a time: HubSpot's filters compare no finer, whatever its responses show."""
    return (time - EPOCH) // timedelta(milliseconds=1)
