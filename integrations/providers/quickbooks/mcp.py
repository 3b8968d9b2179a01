"""QuickBooks over Intuit's MCP server (github.com/intuit/quickbooks-online-mcp-server), behind HTTP of one's own.

Intuit hosts none, and theirs serves one company: QUICKBOOKS_MCP_URL has to lead to one that goes by the tenant's token.
Deleted invoices are found by full syncs only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from integrations.models import ConnectedSource
from integrations.providers import CapabilityMissing
from integrations.providers.quickbooks import rest
from integrations.transports.mcp_adapter import McpRestAdapter, Params
from integrations.transports.mcp_tools import tool_error
from integrations.transports.responses import ProviderError, parse_json_object
from vendors.guard import InvalidResponse

SEARCHES = {"Customer": "search_customers", "Invoice": "search_invoices"}
GETS = {"customer": ("get_customer", "read_customer"), "invoice": ("get_invoice", "read_invoice")}
QUERY = re.compile(r"SELECT \* FROM (\w+)(?: WHERE .+)? ORDERBY Id STARTPOSITION (\d+) MAXRESULTS (\d+)")
FOUND, FAILED = re.compile(r"Found (\d+)\b"), re.compile(r"(?:Error|Invalid)\b")
# Customers that were made inactive too, which is how QuickBooks deletes them.
ALL = {"Customer": [{"field": "Active", "value": ["true", "false"], "operator": "IN"}], "Invoice": []}


class Client(rest.Client):
    """A company, asked through the tools of its server."""

    def __init__(self, source: ConnectedSource, tools: Any) -> None:
        super().__init__(source, QuickBooksMcpAdapter(source, tools))


class QuickBooksMcpAdapter(McpRestAdapter):
    TOOLS = (*SEARCHES.values(), *(name for names in GETS.values() for name in names))
    ROUTES = (
        ("GET", r".*/query", "queried"),
        ("GET", r".*/cdc", "changed"),
        ("GET", r".*/(customer|invoice)/(\d+)", "one"),
    )

    def queried(self, operation: str, asked: Params) -> dict[str, Any]:
        found = QUERY.fullmatch(asked["query"])
        if not found or found[1] not in SEARCHES:
            raise CapabilityMissing("query")
        rows = self._search(operation, found[1], ALL[found[1]], int(found[2]), int(found[3]))
        return {"QueryResponse": {found[1]: rows} if rows else {}}

    def changed(self, operation: str, asked: Params) -> dict[str, Any]:
        entity = asked["entities"]
        since = {"field": "MetaData.LastUpdatedTime", "value": asked["changedSince"], "operator": ">="}
        rows = self._search(operation, entity, [*ALL[entity], since], 1, rest.MOST)
        return {"CDCResponse": [{"QueryResponse": [{entity: rows} if rows else {}]}]}

    def one(self, operation: str, asked: Params, name: str, id: str) -> dict[str, Any]:
        tool = next((tool for tool in GETS[name] if self.has(tool)), GETS[name][0])

        def read(body: Mapping[str, Any]) -> dict[str, Any]:
            rows = _rows(body, name.capitalize())
            if not rows:
                raise ProviderError(404, {}, "610")
            return {name.capitalize(): rows[0]}

        return self.call(tool, {"id": id}, operation, read)

    def _search(
        self, operation: str, entity: str, filters: list[dict[str, Any]], start: int, most: int
    ) -> list[dict[str, Any]]:
        tool, bounds = SEARCHES[entity], {"asc": "Id", "limit": most, "offset": start}
        wanted: dict[str, Any] = {"criteria": filters or None, **bounds}
        if not self.takes(tool, "limit"):
            wanted = {"criteria": {"filters": filters, **bounds}}
        return self.call(tool, wanted, operation, lambda body: _rows(body, entity))


def _rows(body: Mapping[str, Any], entity: str) -> list[dict[str, Any]]:
    """Return the entities of an answer: a sentence, then one text each. An error is a sentence as well."""
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
        raise InvalidResponse("A tool told no list of entities.")  # taken for an empty one it would delete
    return rows
