"""QuickBooks Online over its REST API, and what that does not promise."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings

from integrations.models import ConnectedSource, IngestionJob
from integrations.providers import CapabilityMissing, Stream
from integrations.providers.listing_response import UnreadableResponse
from integrations.providers.quickbooks import STREAMS
from integrations.providers.quickbooks.objects import ENTITY_TYPES, EntityType, entity_id, parse_item, parse_items
from integrations.providers.values import now_cursor, overlap_start, parse_time, required_list
from integrations.types import Page, RawItem

# developer.intuit.com/app/developer/qbo/docs/learn/explore-the-quickbooks-online-api/data-queries, …/minor-versions
MINOR_VERSION = "75"
MOST = 1000  # entities in an answer
# …/change-data-capture: 30 days, and no more than 1,000 objects, in no known order.
LOOK_BACK = timedelta(days=29)
OVERLAP = 10  # entities that two pages share: when one before them is deleted, all others move up
TRUSTED_CLOCK = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class PagePosition:
    """Where the next page begins, counted from 1, and the ids that the last one ended with."""

    start: int = 1
    known: Sequence[str] = ()

    def joins(self, rows: Sequence[Any]) -> bool:
        """Tell whether a page begins no later than the last one has ended."""
        return self.start == 1 or not self.known or any(entity_id(row) in self.known for row in rows)

    def after(self, rows: Sequence[Any], most: int) -> PagePosition | None:
        if len(rows) < most:
            return None
        shared = rows[-min(OVERLAP, most // 2) :] if most > 1 else []
        return PagePosition(self.start + len(rows) - len(shared), [id for row in shared if (id := entity_id(row))])


class Client:
    """A company, asked through ``rest``: transports.rest.Rest, or transports.fixtures.Recorded."""

    provider = "quickbooks"

    def __init__(self, source: ConnectedSource, rest: Any) -> None:
        self._rest = rest
        self._company = f"/v3/company/{source.account}"

    def begin(self, kind: str) -> dict[str, Any]:
        """Return our own clock's time; the first page of each stream then tells QuickBooks' own."""
        return {stream.name: now_cursor() for stream in STREAMS}

    def page(self, stream: Stream, kind: str, since: Any, following: str | None) -> Page:
        if kind == IngestionJob.Kind.FULL:
            return self._listed(ENTITY_TYPES[stream.name], following)
        if since is None or datetime.now(UTC) - overlap_start(since) > LOOK_BACK:
            return Page([], expired=True)
        return self._changed(ENTITY_TYPES[stream.name], overlap_start(since))

    def list(self, method: str, params: Mapping[str, Any] | None = None) -> Iterator[RawItem]:
        """Yield every entity of a method; the few that two pages share come twice. It takes no ``params``."""
        following = None
        while True:
            page = self._listed(_kind(method), following)
            yield from page.items
            following = page.following
            if following is None:
                return

    def get(self, method: str, id: str) -> RawItem:
        """Return one entity by QuickBooks' own id, or ours. Raises ``ValueError`` for an answer that is none."""
        kind = _kind(method)
        body = self._asked(f"{kind.singular}/{id.removeprefix(f'{kind.singular}:')}", f"get-{kind.singular}", {})
        return parse_item(kind, body.get(kind.entity))

    def download(self, item: RawItem) -> Iterator[bytes]:
        raise NotImplementedError("QuickBooks' records have no files")

    def close(self) -> None:
        self._rest.close()

    def _listed(self, kind: EntityType, following: str | None) -> Page:
        place, most = PagePosition(**json.loads(following)) if following else PagePosition(), _limit()
        body, rows = self._queried(kind, place.start, most)
        while not place.joins(rows):
            place = PagePosition(max(1, place.start - most), place.known)
            body, rows = self._queried(kind, place.start, most)
        onward = place.after(rows, most)
        found, failed = parse_items(kind, rows)
        told = None if following else _time(body)
        return Page(found, following=json.dumps(asdict(onward)) if onward else None, failed=failed, cursor=told)

    def _queried(self, kind: EntityType, start: int, most: int) -> tuple[Mapping[str, Any], Sequence[Any]]:
        # By position: whether "Id > '99'" compares numbers or letters is nowhere promised.
        query = f"SELECT * FROM {kind.entity}{kind.where} ORDERBY Id STARTPOSITION {start} MAXRESULTS {most}"
        body = self._asked("query", f"query-{kind.singular}", {"query": query})
        answer = body.get("QueryResponse")
        if not isinstance(answer, Mapping) or "Fault" in answer:
            raise UnreadableResponse
        return body, required_list(answer, kind.entity) if kind.entity in answer else []

    def _changed(self, kind: EntityType, since: datetime) -> Page:
        asked = {"entities": kind.entity, "changedSince": since.isoformat(timespec="seconds")}
        body = self._asked("cdc", f"cdc-{kind.singular}", asked)
        rows: list[Any] = []
        for answer in required_list(body, "CDCResponse"):
            for each in required_list(answer, "QueryResponse"):
                if not isinstance(each, Mapping) or "Fault" in each:
                    raise UnreadableResponse
                rows += required_list(each, kind.entity) if kind.entity in each else []
        if len(rows) >= MOST:
            return Page([], expired=True)
        found, failed = parse_items(kind, rows)
        return Page(found, failed=failed, cursor=_time(body))

    def _asked(self, path: str, operation: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        asked = {**params, "minorversion": MINOR_VERSION}
        body: Mapping[str, Any] = self._rest.json("GET", f"{self._company}/{path}", operation=operation, params=asked)
        if "Fault" in body or "fault" in body:
            raise UnreadableResponse
        return body


def _kind(method: str) -> EntityType:
    name = next((stream.name for stream in STREAMS if stream.method == method), None)
    if name is None:
        raise CapabilityMissing(method)
    return ENTITY_TYPES[name]


def _limit() -> int:
    return min(MOST, int(settings.INGESTION_PAGE_SIZE))


def _time(body: Mapping[str, Any]) -> str | None:
    """Return QuickBooks' own time as a cursor, unless it is so far from ours that it was recorded, or is none."""
    try:
        told = parse_time(str(body.get("time")))
    except ValueError:
        return None
    return told.isoformat(timespec="milliseconds") if abs(datetime.now(UTC) - told) < TRUSTED_CLOCK else None
