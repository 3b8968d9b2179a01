"""QuickBooks over Intuit's MCP server (github.com/intuit/quickbooks-online-mcp-server), behind one's own HTTP server.

Intuit hosts none, and theirs serves one company: QUICKBOOKS_MCP_URL must name a server that goes by the tenant's token.
Deleted invoices are found by full syncs only.
"""

import re
from collections.abc import Mapping
from typing import Any

from integrations.providers.interface import CapabilityMissing, Params
from integrations.providers.quickbooks import rest
from integrations.transports.mcp import McpTransport
from integrations.transports.mcp_tools import tool_error
from integrations.transports.responses import ProviderError, parse_json_object
from vendors.call_failures import InvalidResponse

SEARCHES = {"Customer": "search_customers", "Invoice": "search_invoices"}
GETS = {"customer": ("get_customer", "read_customer"), "invoice": ("get_invoice", "read_invoice")}
QUERY = re.compile(r"SELECT \* FROM (\w+)(?: WHERE .+)? ORDERBY Id STARTPOSITION (\d+) MAXRESULTS (\d+)")
FOUND, FAILED = re.compile(r"Found (\d+)\b"), re.compile(r"(?:Error|Invalid)\b")
# Inactive customers too: deactivating is how QuickBooks deletes them.
ALL = {"Customer": [{"field": "Active", "value": ["true", "false"], "operator": "IN"}], "Invoice": []}


class Transport(McpTransport):
    TOOLS = (*SEARCHES.values(), *(name for names in GETS.values() for name in names))
    ROUTES = (
        ("GET", r".*/query", "query"),
        ("GET", r".*/cdc", "changes"),
        ("GET", r".*/(customer|invoice)/(\d+)", "entity"),
    )

    def query(self, operation: str, params: Params) -> dict[str, Any]:
        query = QUERY.fullmatch(params["query"])
        if not query or query[1] not in SEARCHES:
            raise CapabilityMissing("query")
        rows = self._search(operation, query[1], ALL[query[1]], int(query[2]), int(query[3]))
        return {"QueryResponse": {query[1]: rows} if rows else {}}

    def changes(self, operation: str, params: Params) -> dict[str, Any]:
        entity = params["entities"]
        since = {"field": "MetaData.LastUpdatedTime", "value": params["changedSince"], "operator": ">="}
        rows = self._search(operation, entity, [*ALL[entity], since], 1, rest.MOST)
        return {"CDCResponse": [{"QueryResponse": [{entity: rows} if rows else {}]}]}

    def entity(self, operation: str, params: Params, name: str, id: str) -> dict[str, Any]:
        tool = next((tool for tool in GETS[name] if tool in self.names()), GETS[name][0])

        def read(body: Mapping[str, Any]) -> dict[str, Any]:
            rows = _rows(body, name.capitalize())
            if not rows:
                raise ProviderError(404, {}, "610")
            return {name.capitalize(): rows[0]}

        return self.call_fitting(tool, {"id": id}, operation, read)

    def _search(
        self, operation: str, entity: str, filters: list[dict[str, Any]], start: int, most: int
    ) -> list[dict[str, Any]]:
        tool, bounds = SEARCHES[entity], {"asc": "Id", "limit": most, "offset": start}
        arguments: dict[str, Any] = {"criteria": filters or None, **bounds}
        if not self.takes(tool, "limit"):
            arguments = {"criteria": {"filters": filters, **bounds}}
        return self.call_fitting(tool, arguments, operation, lambda body: _rows(body, entity))


def _rows(body: Mapping[str, Any], entity: str) -> list[dict[str, Any]]:
    """Return the entities of a response: a sentence, then one text each. An error is a sentence as well."""
    texts = body.get("texts")
    if not isinstance(texts, list):
        rows = body.get(entity, [body] if "Id" in body else None)
    elif texts and FAILED.match(texts[0]):
        raise tool_error(texts[0])
    else:
        rows = [parse_json_object(text) for text in texts[1:]]
        count = FOUND.match(texts[0]) if texts else None
        if count and int(count[1]) != len(rows):
            rows = None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows) or body == {"texts": []}:
        raise InvalidResponse("A tool returned no list of entities.")  # taken for an empty one it would delete
    return rows
