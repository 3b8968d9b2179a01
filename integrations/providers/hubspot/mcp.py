"""HubSpot over its own MCP server (mcp.hubspot.com): developers.hubspot.com/mcp.

Pages go by the record's id, not by the tool's ``offset``, which ends at 10,000 records and shifts when one is deleted.
The archive is not shown: deletions are found by full syncs only.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from integrations.providers.hubspot.mapping import OBJECT_TYPES, ObjectType
from integrations.providers.interface import CapabilityMissing, Params
from integrations.transports.mcp import McpTransport
from integrations.transports.responses import ProviderError
from vendors.call_failures import InvalidResponse

SEARCH, GET = "search_crm_objects", "get_crm_objects"
PRIMARY = "hs_primary_associated_company"  # of a deal: tools return no associations, but this property of the first
KEPT = ("createdAt", "updatedAt", "archived", "associations")


class Transport(McpTransport):
    TOOLS = (SEARCH, GET)
    ROUTES = (
        ("GET", r".*/(contacts|companies|deals)", "list_objects"),
        ("GET", r".*/(contacts|companies|deals)/(\d+)", "get_object"),
        ("POST", r".*/(contacts|companies|deals)/search", "search_objects"),
        ("POST", r".*/deals/companies/batch/read", "read_associations"),
    )

    def list_objects(self, operation: str, params: Params, name: str) -> dict[str, Any]:
        if params.get("archived") == "true":
            return {"results": []}
        kind, after = OBJECT_TYPES[name], str(params.get("after") or "0")
        beyond = {"propertyName": "hs_object_id", "operator": "GT", "value": after}
        arguments = {
            "filterGroups": [{"filters": [beyond]}],
            "sorts": [{"propertyName": "hs_object_id", "direction": "ASCENDING"}],
            "properties": _properties(kind, params),
            "limit": params["limit"],
        }
        return self._search(operation, arguments, kind, int(after))

    def search_objects(self, operation: str, params: Params, name: str) -> dict[str, Any]:
        arguments = {each: params.get(each) for each in ("filterGroups", "sorts", "properties", "limit")}
        return self._search(operation, arguments, OBJECT_TYPES[name], None)

    def get_object(self, operation: str, params: Params, name: str, id: str) -> dict[str, Any]:
        kind = OBJECT_TYPES[name]
        rows = self._get(operation, kind, [id], _properties(kind, params))
        return _rest_row(kind, rows[0], with_company=kind.associations is not None)

    def read_associations(self, operation: str, params: Params) -> dict[str, Any]:
        ids = [str(each["id"]) for each in params["inputs"]]
        rows = self._get(operation, OBJECT_TYPES["deals"], ids, [PRIMARY])
        companies = [(str(row["id"]), _company(row)) for row in rows]
        types = [{"typeId": 341}, {"typeId": 5}]
        return {
            "results": [
                {"from": {"id": id}, "to": [{"toObjectId": company, "associationTypes": types}]}
                for id, company in companies
                if company
            ]
        }

    def _search(self, operation: str, arguments: Params, kind: ObjectType, after: int | None) -> dict[str, Any]:
        def read(body: Mapping[str, Any]) -> dict[str, Any]:
            rows, total = _rows(body), body.get("total")
            ids = [int(row["id"]) for row in rows]
            if after is not None and ids != sorted(id for id in set(ids) if id > after):
                raise InvalidResponse("The page is not the requested one.")
            more = total > len(rows) if isinstance(total, int) else len(rows) >= arguments["limit"]
            paging = {"paging": {"next": {"after": str(ids[-1])}}} if rows and more else {}
            with_company = after is not None and kind.associations is not None  # a search reads associations apart
            return {"results": [_rest_row(kind, row, with_company=with_company) for row in rows], **paging}

        return self.call_fitting(SEARCH, {"objectType": kind.name, **arguments}, operation, read)

    def _get(
        self, operation: str, kind: ObjectType, ids: Sequence[str], properties: Sequence[str]
    ) -> list[dict[str, Any]]:
        def read(body: Mapping[str, Any]) -> list[dict[str, Any]]:
            rows = _rows(body)
            if len(ids) == 1 and not rows:
                raise ProviderError(404, {}, "OBJECT_NOT_FOUND")
            return rows

        arguments = {"objectType": kind.name, "objectIds": [int(id) for id in ids], "properties": list(properties)}
        return self.call_fitting(GET, arguments, operation, read)


def _properties(kind: ObjectType, params: Params) -> list[str]:
    return [*str(params["properties"]).split(","), "hs_object_id", *([PRIMARY] if kind.associations else [])]


def _rows(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = body.get("results")
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get("properties"), dict) and str(row.get("id")).isdecimal()
        for row in rows
    ):
        raise InvalidResponse("A tool returned no list of records.")
    return rows


def _rest_row(kind: ObjectType, row: Mapping[str, Any], *, with_company: bool) -> dict[str, Any]:
    properties = {name: text for name, text in row["properties"].items() if name != PRIMARY}
    rest_row = {
        "id": str(row["id"]),
        "properties": properties,
        "createdAt": properties.get("createdate"),
        "updatedAt": properties.get(kind.modified),
        "archived": False,
        **{name: row[name] for name in KEPT if name in row},
    }
    if with_company and "associations" not in row and (company := _company(row)):
        types = ("deal_to_company", "deal_to_company_unlabeled")
        rest_row["associations"] = {"companies": {"results": [{"id": company, "type": type} for type in types]}}
    return rest_row


def _company(row: Mapping[str, Any]) -> str | None:
    """Return a deal's company. Raises ``CapabilityMissing`` when the server omits the property, even as null."""
    properties = row["properties"]
    if PRIMARY not in properties and None in properties.values():
        raise CapabilityMissing(f"{SEARCH}.properties.{PRIMARY}")
    return str(properties[PRIMARY]) if properties.get(PRIMARY) else None
