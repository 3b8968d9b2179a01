"""QuickBooks Online over its REST API: paging by position, and change data capture."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from integrations.models import IngestionJob
from integrations.providers import payload_fields
from integrations.providers.interface import McpClient, Page, RawItem, Stream, stream_for
from integrations.providers.payload_fields import UnreadableResponse, page_size, parse_items, parse_time, required_list
from integrations.providers.quickbooks.mapping import ENTITY_TYPES, STREAMS, EntityType, parse_item

# developer.intuit.com/app/developer/qbo/docs/learn/explore-the-quickbooks-online-api/data-queries, …/minor-versions
MINOR_VERSION = "75"
MOST = 1000  # entities in a response
# …/change-data-capture: 30 days, and no more than 1,000 objects, in no known order.
LOOK_BACK = timedelta(days=29)
OVERLAP = 10  # entities that two pages share: when one before them is deleted, all others move up
TRUSTED_CLOCK = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class PagePosition:
    """The position of the next page, counted from 1, and the ids at the end of the last one."""

    start: int = 1
    known: Sequence[str] = ()

    def joins(self, rows: Sequence[Any]) -> bool:
        """Return whether a page begins no later than the last one has ended."""
        ids = {payload_fields.id_or_none(row, "Id") for row in rows}
        return self.start == 1 or not self.known or not ids.isdisjoint(self.known)

    def next_position(self, rows: Sequence[Any], most: int) -> Self | None:
        if len(rows) < most:
            return None
        shared = rows[-min(OVERLAP, most // 2) :] if most > 1 else []
        known = [id for row in shared if (id := payload_fields.id_or_none(row, "Id"))]
        return replace(self, start=self.start + len(rows) - len(shared), known=known)


class Client(McpClient):
    """A company. Of ``list``, the few entities that two pages share come twice."""

    provider = "quickbooks"

    def begin(self, kind: str) -> dict[str, Any]:
        """Return our own clock's time; the first page of each stream then returns QuickBooks' own."""
        return {stream.name: payload_fields.now_cursor() for stream in STREAMS}

    def page(self, stream: Stream, kind: str, since: Any, page_token: str | None) -> Page:
        if kind == IngestionJob.Kind.FULL:
            return self._list(ENTITY_TYPES[stream.name], page_token)
        if since is None or datetime.now(UTC) - payload_fields.overlap_start(since) > LOOK_BACK:
            return Page([], expired=True)
        return self._list_changes(ENTITY_TYPES[stream.name], payload_fields.overlap_start(since))

    def get(self, method: str, id: str) -> RawItem:
        kind = ENTITY_TYPES[stream_for(STREAMS, method).name]
        body = self._request(f"{kind.singular}/{id.removeprefix(f'{kind.singular}:')}", f"get-{kind.singular}", {})
        return parse_item(kind, body.get(kind.entity))

    def _list(self, kind: EntityType, page_token: str | None) -> Page:
        position, most = PagePosition(**json.loads(page_token)) if page_token else PagePosition(), page_size(MOST)
        body, rows = self._query(kind, position.start, most)
        while not position.joins(rows):
            position = PagePosition(max(1, position.start - most), position.known)
            body, rows = self._query(kind, position.start, most)
        after = position.next_position(rows, most)
        items, failed = parse_items(kind, rows, parse_item, "Id")
        cursor = None if page_token else _server_time(body)
        return Page(items, next_page=json.dumps(asdict(after)) if after else None, failed=failed, cursor=cursor)

    def _query(self, kind: EntityType, start: int, most: int) -> tuple[Mapping[str, Any], Sequence[Any]]:
        # By position: whether "Id > '99'" compares numbers or letters is promised nowhere.
        query = f"SELECT * FROM {kind.entity}{kind.where} ORDERBY Id STARTPOSITION {start} MAXRESULTS {most}"
        body = self._request("query", f"query-{kind.singular}", {"query": query})
        return body, _entities(body.get("QueryResponse"), kind)

    def _list_changes(self, kind: EntityType, since: datetime) -> Page:
        params = {"entities": kind.entity, "changedSince": since.isoformat(timespec="seconds")}
        body = self._request("cdc", f"cdc-{kind.singular}", params)
        rows: list[Any] = []
        for changes in required_list(body, "CDCResponse"):
            for response in required_list(changes, "QueryResponse"):
                rows += _entities(response, kind)
        if len(rows) >= MOST:
            return Page([], expired=True)
        items, failed = parse_items(kind, rows, parse_item, "Id")
        return Page(items, failed=failed, cursor=_server_time(body))

    def _request(self, path: str, operation: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        params = {**params, "minorversion": MINOR_VERSION}
        body = self.transport.json(
            "GET", f"/v3/company/{self.source.account}/{path}", operation=operation, params=params
        )
        if "Fault" in body or "fault" in body:
            raise UnreadableResponse
        return body


def _entities(response: Any, kind: EntityType) -> list[Any]:
    if not isinstance(response, Mapping) or "Fault" in response:
        raise UnreadableResponse
    return required_list(response, kind.entity) if kind.entity in response else []


def _server_time(body: Mapping[str, Any]) -> str | None:
    """Return QuickBooks' own time as a cursor; None when absent, or so far from ours that it was recorded."""
    try:
        time = parse_time(str(body.get("time")))
    except ValueError:
        return None
    return time.isoformat(timespec="milliseconds") if abs(datetime.now(UTC) - time) < TRUSTED_CLOCK else None
