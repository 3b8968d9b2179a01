"""HubSpot over its REST API: developers.hubspot.com/docs/api-reference/crm-contacts-v3/guide and its neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.conf import settings

from integrations.models import ConnectedSource, IngestionJob
from integrations.providers import CapabilityMissing, Stream
from integrations.providers.hubspot import STREAMS
from integrations.providers.hubspot.incremental import SearchCursor
from integrations.providers.hubspot.objects import (
    COMPANY_TYPES,
    OBJECT_TYPES,
    ObjectType,
    archived_item,
    merged_items,
    parse_item,
    parse_items,
)
from integrations.providers.listing_response import UnreadableResponse
from integrations.providers.values import now_cursor, overlap_start, required_list, text_at
from integrations.types import Page, RawItem

MOST = 100  # records a page
NONE_FOUND = "OBJECT_NOT_FOUND"  # of a deal without a company, or one that was deleted just now


class Client:
    """An account, asked through ``rest``: transports.rest.Rest, or transports.fixtures.Recorded."""

    provider = "hubspot"

    def __init__(self, source: ConnectedSource, rest: Any) -> None:
        self._rest = rest
        known = settings.CONNECTORS["hubspot"]
        self._objects, self._associations = known["objects_path"], known["associations_path"]

    def begin(self, kind: str) -> dict[str, Any]:
        return {stream.name: now_cursor() for stream in STREAMS}

    def page(self, stream: Stream, kind: str, since: Any, following: str | None) -> Page:
        if kind == IngestionJob.Kind.FULL:
            return self._listed(OBJECT_TYPES[stream.name], {"after": following})
        if since is None:
            return Page([], expired=True)
        place = SearchCursor.parse(following) if following else SearchCursor.at(overlap_start(since))
        if place.archived:
            return self._archived(OBJECT_TYPES[stream.name], place)
        return self._changed(OBJECT_TYPES[stream.name], since, place)

    def list(self, method: str, params: Mapping[str, Any] | None = None) -> Iterator[RawItem]:
        kind, after = _kind(method), None
        while True:
            page = self._listed(kind, {**(params or {}), "after": after})
            yield from page.items
            after = page.following
            if after is None:
                return

    def get(self, method: str, id: str) -> RawItem:
        """Return one record by HubSpot's own id, or ours. Raises ``ValueError`` for an answer that is none."""
        kind = _kind(method)
        path = f"{self._objects}/{kind.name}/{id.removeprefix(f'{kind.singular}:')}"
        return parse_item(kind, self._rest.json("GET", path, operation=f"get-{kind.singular}", params=_asked(kind)))

    def download(self, item: RawItem) -> Iterator[bytes]:
        raise NotImplementedError("HubSpot's records have no files")

    def close(self) -> None:
        self._rest.close()

    def _listed(self, kind: ObjectType, params: Mapping[str, Any]) -> Page:
        asked = {"limit": _limit(), **_asked(kind), **params}
        body = self._rest.json("GET", f"{self._objects}/{kind.name}", operation=f"list-{kind.name}", params=asked)
        found, failed = parse_items(kind, required_list(body, "results"))
        return Page(found, following=_next(body), failed=failed)

    def _changed(self, kind: ObjectType, since: str, place: SearchCursor) -> Page:
        asked = {**place.request(kind), "properties": kind.requested_properties, "limit": _limit()}
        path = f"{self._objects}/{kind.name}/search"
        body = self._rest.json("POST", path, operation=f"search-{kind.name}", body=asked)
        rows = required_list(body, "results")
        found, failed = parse_items(kind, self._associated(kind, rows))
        gone = [each for winner in found for each in merged_items(kind, winner)]
        onward = place.after(kind, rows, more=bool(rows and _next(body)))
        following = str(onward or SearchCursor.at(overlap_start(since)).archive())
        return Page([*found, *gone], following=following, failed=failed)

    def _associated(self, kind: ObjectType, rows: Sequence[Any]) -> Sequence[Any]:
        """Return the rows as a listing shows them: a search leaves out what they are associated with."""
        ids = [{"id": row["id"]} for row in rows if isinstance(row, Mapping) and isinstance(row.get("id"), str)]
        if kind.associations is None or not ids:
            return rows
        path = f"{self._associations}/{kind.name}/{kind.associations}/batch/read"
        body = self._rest.json("POST", path, operation="read-associations", body={"inputs": ids})
        known = dict(_associations(required_list(body, "results")))
        if any(text_at(each, "category") != NONE_FOUND for each in body.get("errors") or []):
            raise UnreadableResponse  # of some deals only, in an answer of 207: they would seem to be nobody's
        return [_with(row, kind.associations, known) for row in rows]

    def _archived(self, kind: ObjectType, place: SearchCursor) -> Page:
        """Return what was put into the bin since; the bin, of 90 days, cannot be asked by time."""
        asked = {"limit": _limit(), "archived": "true", "properties": "hs_object_id", "after": place.beyond}
        body = self._rest.json("GET", f"{self._objects}/{kind.name}", operation=f"bin-{kind.name}", params=asked)
        gone, failed = parse_items(kind, required_list(body, "results"), archived_item)
        after = _next(body)
        return Page(
            [each for each in gone if each.source_updated_at is None or place.includes(each.source_updated_at)],
            following=str(place.archive(after)) if after else None,
            failed=failed,
        )


def _kind(method: str) -> ObjectType:
    name = next((stream.name for stream in STREAMS if stream.method == method), None)
    if name is None:
        raise CapabilityMissing(method)
    return OBJECT_TYPES[name]


def _asked(kind: ObjectType) -> dict[str, Any]:
    return {"properties": ",".join(kind.requested_properties), "associations": kind.associations}


def _limit() -> int:
    return min(MOST, int(settings.INGESTION_PAGE_SIZE))


def _next(body: Mapping[str, Any]) -> str | None:
    paging = body.get("paging")
    onward = paging.get("next") if isinstance(paging, Mapping) else None
    after = onward.get("after") if isinstance(onward, Mapping) else None
    return str(after) if after else None


def _associations(results: Sequence[Any]) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield each deal's companies in the form that a listing has them in."""
    try:
        for result in results:
            companies = [
                {"id": str(to["toObjectId"]), "type": name}
                for to in result["to"]
                for type, name in COMPANY_TYPES.items()
                if any(each["typeId"] == type for each in to["associationTypes"])
            ]
            yield str(result["from"]["id"]), companies
    except (KeyError, TypeError):
        raise UnreadableResponse from None


def _with(row: Any, name: str, known: Mapping[str, Any]) -> Any:
    found = known.get(row["id"]) if isinstance(row, Mapping) and isinstance(row.get("id"), str) else None
    return {**row, "associations": {name: {"results": found}}} if found else row
