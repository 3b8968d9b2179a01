"""Missing and changed tools of a provider's MCP server, and responses that are not trusted."""

# ruff: noqa: F811

import json
from typing import Any
from uuid import uuid4

import pytest

from integrations.providers.interface import CapabilityMissing, provider_module
from integrations.tests.mcp_accounts import (  # noqa: F401
    Account,
    drive,
    drive_running,
    gmail,
    gmail_running,
    hubspot,
    hubspot_running,
    quickbooks,
    quickbooks_running,
    sync_items,
    use,
)
from integrations.transports import make_client
from jobs.outcomes import Retryable
from testing.fakes.mcp import TOKEN, McpFault, Tool

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("tool", ["search_crm_objects"])
def test_a_missing_tool_is_named_and_stored(hubspot: Account, tool: str) -> None:
    source = hubspot.source("mcp")
    source.user_id = uuid4()
    source.save()
    del hubspot.server.tools[tool]

    with pytest.raises(CapabilityMissing, match=tool):
        sync_items(make_client(source, TOKEN))

    source.refresh_from_db()
    assert source.capabilities == {"tools": ["get_crm_objects"], "missing": tool}


def test_the_servers_tools_are_stored(hubspot: Account) -> None:
    source = hubspot.source("mcp")
    source.user_id, source.capabilities = uuid4(), {"tools": [], "missing": "search_crm_objects"}
    source.save()

    sync_items(make_client(source, TOKEN))

    source.refresh_from_db()
    assert source.capabilities == {"tools": ["search_crm_objects", "get_crm_objects"]}


@pytest.mark.parametrize(
    ("name", "tool", "argument"),
    [
        ("hubspot", "search_crm_objects", "filterGroups"),
        ("hubspot", "search_crm_objects", "objectType"),
        ("drive", "search_files", "pageToken"),
        ("drive", "download_file_content", "fileId"),
        ("gmail", "search_threads", "pageToken"),
        ("gmail", "get_thread", "threadId"),
    ],
)
def test_a_renamed_argument_is_named(request: pytest.FixtureRequest, name: str, tool: str, argument: str) -> None:
    account = request.getfixturevalue(name)
    account.server.rename(tool, argument, f"{argument}_v2")

    with pytest.raises(CapabilityMissing, match=rf"^{tool}\.{argument}$"):
        sync_items(account.client("mcp"))

    assert not [arguments for called, arguments in account.server.calls if called == tool]


def test_a_new_required_argument_is_named(gmail: Account) -> None:
    gmail.server.require("search_threads", "consent", {"type": "string"})

    with pytest.raises(CapabilityMissing, match=r"^search_threads\.consent$"):
        sync_items(gmail.client("mcp"))


def test_hubspots_chat_insights_argument_is_filled(hubspot: Account) -> None:
    insights = {
        "type": "object",
        "properties": {"userIntent": {"type": "string"}, "satisfaction": {"enum": ["SATISFIED", "NEUTRAL"]}},
        "required": ["userIntent", "satisfaction"],
    }
    for tool in ("search_crm_objects", "get_crm_objects"):
        hubspot.server.require(tool, "chatInsights", insights)

    assert len(sync_items(hubspot.client("mcp"))) == 18


def test_an_argument_of_another_type_is_named(hubspot: Account) -> None:
    was = hubspot.server.tools["search_crm_objects"]
    changed = {**was.properties, "properties": {"type": "string"}}
    hubspot.server.tools["search_crm_objects"] = Tool(changed, was.act, was.required)

    with pytest.raises(CapabilityMissing, match=r"^search_crm_objects\.properties$"):
        sync_items(hubspot.client("mcp"))


def test_a_server_that_omits_a_deals_company_is_not_trusted(hubspot: Account) -> None:
    def act(params: dict[str, Any]) -> dict[str, Any]:
        return {"results": [{"id": 1, "properties": {"dealname": "Deal", "amount": None}}], "total": 1}

    was = hubspot.server.tools["search_crm_objects"]
    hubspot.server.tools["search_crm_objects"] = Tool(was.properties, act)

    with pytest.raises(CapabilityMissing, match="hs_primary_associated_company"):
        hubspot.client("mcp").page(provider_module("hubspot").STREAMS[2], "full_sync", None, None)


# --- what is not believed -------------------------------------------------------------------------------------------
def test_a_repeated_page_does_not_loop(hubspot: Account) -> None:
    stream, client = provider_module("hubspot").STREAMS[0], hubspot.client("mcp")
    first = client.page(stream, "full_sync", None, None)
    page = {"results": [{"id": 1, "properties": {}}, {"id": 2, "properties": {}}], "total": 7}
    hubspot.server.inject_fault("tool search_crm_objects", McpFault(instead=page))

    with pytest.raises(Retryable):
        client.page(stream, "full_sync", None, first.next_page)


@pytest.mark.parametrize(
    ("name", "tool", "answer"),
    [
        ("hubspot", "search_crm_objects", {"message": "nothing"}),
        ("hubspot", "search_crm_objects", ["Nothing to see."]),
        ("quickbooks", "search_customers", ["Error searching customers: the token has no company"]),
        ("quickbooks", "search_customers", ["Found 3 customers:", json.dumps({"Id": "1"})]),
        ("quickbooks", "search_customers", []),
        ("drive", "search_files", {"message": "nothing"}),
        ("drive", "search_files", ["Nothing to see."]),
        ("gmail", "search_threads", {"message": "nothing"}),
    ],
)
def test_a_response_that_is_no_listing_is_not_an_empty_one(
    request: pytest.FixtureRequest, name: str, tool: str, answer: Any
) -> None:
    account = request.getfixturevalue(name)
    account.server.inject_fault(f"tool {tool}", McpFault(instead=answer))

    with pytest.raises(Retryable):
        sync_items(account.client("mcp"))
