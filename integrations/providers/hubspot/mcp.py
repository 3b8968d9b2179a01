"""HubSpot over its own MCP server (mcp.hubspot.com): developers.hubspot.com/mcp.

Pages go by the record's id, not by the tool's ``offset``: that ends at 10,000 records, and moves when one is deleted.
The bin is not shown: what was deleted is found by full syncs only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from integrations.models import ConnectedSource
from integrations.providers import CapabilityMissing
from integrations.providers.hubspot import rest
from integrations.providers.hubspot.objects import OBJECT_TYPES, ObjectType
from integrations.transports.mcp_adapter import McpRestAdapter, Params
from integrations.transports.responses import ProviderError
from vendors.guard import InvalidResponse

SEARCH, GET = "search_crm_objects", "get_crm_objects"
PRIMARY = "hs_primary_associated_company"  # of a deal: tools tell no associations, but this property names the first
TOLD = ("createdAt", "updatedAt", "archived", "associations")


class Client(rest.Client):
    """An account, asked through the tools of its server."""

    def __init__(self, source: ConnectedSource, tools: Any) -> None:
        super().__init__(source, HubSpotMcpAdapter(source, tools))


class HubSpotMcpAdapter(McpRestAdapter):
    TOOLS = (SEARCH, GET)
    ROUTES = (
        ("GET", r".*/(contacts|companies|deals)", "listed"),
        ("GET", r".*/(contacts|companies|deals)/(\d+)", "one"),
        ("POST", r".*/(contacts|companies|deals)/search", "searched"),
        ("POST", r".*/deals/companies/batch/read", "associated"),
    )

    def listed(self, operation: str, asked: Params, name: str) -> dict[str, Any]:
        if asked.get("archived") == "true":
            return {"results": []}
        kind, after = OBJECT_TYPES[name], str(asked.get("after") or "0")
        beyond = {"propertyName": "hs_object_id", "operator": "GT", "value": after}
        wanted = {
            "filterGroups": [{"filters": [beyond]}],
            "sorts": [{"propertyName": "hs_object_id", "direction": "ASCENDING"}],
            "properties": [*str(asked["properties"]).split(","), *_more(kind)],
            "limit": asked["limit"],
        }
        return self._search(operation, wanted, kind, int(after))

    def searched(self, operation: str, asked: Params, name: str) -> dict[str, Any]:
        wanted = {each: asked.get(each) for each in ("filterGroups", "sorts", "properties", "limit")}
        return self._search(operation, wanted, OBJECT_TYPES[name], None)

    def one(self, operation: str, asked: Params, name: str, id: str) -> dict[str, Any]:
        kind = OBJECT_TYPES[name]
        properties = [*str(asked["properties"]).split(","), *_more(kind)]
        found = self._got(operation, kind, [id], properties)
        return _row(kind, found[0], with_company=kind.associations is not None)

    def associated(self, operation: str, asked: Params) -> dict[str, Any]:
        ids = [str(each["id"]) for each in asked["inputs"]]
        rows = self._got(operation, OBJECT_TYPES["deals"], ids, [PRIMARY])
        known = [(str(row["id"]), _company(row)) for row in rows]
        types = [{"typeId": 341}, {"typeId": 5}]
        return {
            "results": [
                {"from": {"id": id}, "to": [{"toObjectId": company, "associationTypes": types}]}
                for id, company in known
                if company
            ]
        }

    def _search(self, operation: str, wanted: Params, kind: ObjectType, after: int | None) -> dict[str, Any]:
        def read(body: Mapping[str, Any]) -> dict[str, Any]:
            rows, total = _rows(body), body.get("total")
            ids = [int(row["id"]) for row in rows]
            if after is not None and ids != sorted(id for id in set(ids) if id > after):
                raise InvalidResponse("The page is another one than was asked for.")
            more = total > len(rows) if isinstance(total, int) else len(rows) >= wanted["limit"]
            following = {"paging": {"next": {"after": str(ids[-1])}}} if rows and more else {}
            with_company = after is not None and kind.associations is not None  # a search is told of it elsewhere
            return {"results": [_row(kind, row, with_company=with_company) for row in rows], **following}

        return self.call(SEARCH, {"objectType": kind.name, **wanted}, operation, read)

    def _got(
        self, operation: str, kind: ObjectType, ids: Sequence[str], properties: Sequence[str]
    ) -> list[dict[str, Any]]:
        def read(body: Mapping[str, Any]) -> list[dict[str, Any]]:
            rows = _rows(body)
            if len(ids) == 1 and not rows:
                raise ProviderError(404, {}, "OBJECT_NOT_FOUND")
            return rows

        wanted = {"objectType": kind.name, "objectIds": [int(id) for id in ids], "properties": list(properties)}
        return self.call(GET, wanted, operation, read)


def _more(kind: ObjectType) -> list[str]:
    return ["hs_object_id", *([PRIMARY] if kind.associations else [])]


def _rows(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = body.get("results")
    if not isinstance(rows, list) or not all(_is_row(row) for row in rows):
        raise InvalidResponse("A tool told no list of records.")
    return rows


def _is_row(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("properties"), dict) and str(row.get("id")).isdecimal()


def _row(kind: ObjectType, row: Mapping[str, Any], *, with_company: bool) -> dict[str, Any]:
    """Return a record as the REST API shows it."""
    said = {name: value for name, value in row["properties"].items() if name != PRIMARY}
    found = {
        "id": str(row["id"]),
        "properties": said,
        "createdAt": said.get("createdate"),
        "updatedAt": said.get(kind.modified),
        "archived": False,
        **{name: row[name] for name in TOLD if name in row},
    }
    if with_company and "associations" not in row and (company := _company(row)):
        types = ("deal_to_company", "deal_to_company_unlabeled")
        found["associations"] = {"companies": {"results": [{"id": company, "type": type} for type in types]}}
    return found


def _company(row: Mapping[str, Any]) -> str | None:
    """Return a deal's company. Raises ``CapabilityMissing`` when the server tells nothing of it, not even null."""
    said = row["properties"]
    if PRIMARY not in said and None in said.values():
        raise CapabilityMissing(f"{SEARCH}.properties.{PRIMARY}")
    return str(said[PRIMARY]) if said.get(PRIMARY) else None
