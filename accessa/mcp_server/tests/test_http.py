"""HTTP of the MCP server: callers, origins, OAuth metadata, and a real process driven by the official SDK's client."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx2
import pytest
import requests
from django.conf import settings as configured
from django.utils import timezone
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams
from starlette.datastructures import Headers
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from accessa.mcp_server import asgi, tools
from accessa.mcp_server import server as server_handlers
from accessa.mcp_server.server import CALLER
from accounts import api_tokens
from accounts.audit.tests.personas import audit_entries
from accounts.authentication import Caller
from accounts.common_error_codes import NOT_AUTHENTICATED
from accounts.errors import ApiError
from accounts.models import ApiToken, User
from search.answers.openai import ClientGone
from testing.cluster import database_params, database_url, wait_until
from testing.factories.searchable_documents import create_searchable_document
from testing.personas import Person
from testing.ports import free_port

LIST_TOOLS = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"accept": "application/json, text/event-stream"}


def caller(authorization: str, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return asgi.authenticate(Headers({"authorization": authorization, **named}))


# Callers


@pytest.mark.django_db
def test_a_token_is_its_owner_with_its_scopes(ana: Person) -> None:
    plain = api_tokens.create_token(ana.user, name="x", scopes=["search"])

    assert (caller(f"Bearer {plain}").pk, caller(f"bearer {plain}").scopes) == (ana.id, {"search"})


@pytest.mark.django_db
def test_every_token_that_is_not_valid_is_refused_alike(ana: Person, ben: Person) -> None:
    expired = api_tokens.create_token(ana.user, name="x", expires_at=timezone.now() - timedelta(seconds=1))
    revoked = api_tokens.create_token(ana.user, name="x")
    ApiToken.objects.filter(digest=api_tokens.token_digest(revoked)).update(revoked_at=timezone.now())
    User.objects.filter(pk=ben.id).update(is_active=False)
    forged = "eyJhbGciOiJub25lIn0.eyJzdWIiOiI0YzQxNTc1My0wMDAwLTQwMDAtODAwMC0wMDAwMDAwMDAwMDAifQ."

    for token in (expired, revoked, ben.token, forged, "acc_", "acc_é", "a b", ana.token[:-1], "x" * 9000):
        with pytest.raises(ApiError) as refused:
            caller(f"Bearer {token}")
        assert refused.value.body == {"code": "INVALID_TOKEN", "detail": "The token is not valid."}, token
    for header in ("", "Basic YTpi", ana.token):
        with pytest.raises(ApiError, match="NOT_AUTHENTICATED"):
            caller(header)


@pytest.mark.django_db
def test_a_service_reads_for_a_tenant_and_is_audited(ana: Person, ben: Person, platform: Person) -> None:
    acting = caller(f"Bearer {platform.token}", x_accessa_user=str(ana.id))

    assert (acting.pk, acting.service) == (ana.id, False)
    assert audit_entries() == [("tenants.service_call", platform.user.email, "POST /mcp", ana.id)]
    for token, tenant, code in (
        (ben.token, ana.id, "FORBIDDEN"),
        (platform.token, uuid4(), "UNKNOWN_TENANT"),
        (platform.token, "x", "UNKNOWN_TENANT"),
    ):
        with pytest.raises(ApiError, match=code):
            caller(f"Bearer {token}", x_accessa_user=str(tenant))


@pytest.mark.parametrize(
    ("host", "origin", "code"),
    [
        ("accessa.example.org", None, None), ("accessa.example.org:443", "https://accessa.example.org", None),
        ("accessa.example.org", "https://app.example.org", None),
        ("accessa.example.org", "https://evil.example.org", "FORBIDDEN"),
        ("accessa.example.org", "http://accessa.example.org", "FORBIDDEN"),
        ("accessa.example.org", "null", "FORBIDDEN"),
        ("accessa.example.org", "", "FORBIDDEN"), ("evil.example.org", None, "INVALID_REQUEST"),
        ("", None, "INVALID_REQUEST"), ("accessa.example.org@evil", None, "INVALID_REQUEST"),
    ],
)  # fmt: skip
def test_other_sites_and_hosts_are_refused(host: str, origin: str | None, code: str | None, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["accessa.example.org"]
    settings.MCP_URL, settings.CORS_ALLOWED_ORIGINS = "https://accessa.example.org/mcp", ["https://app.example.org"]
    headers = Headers({"host": host} | ({} if origin is None else {"origin": origin}))

    if code is None:
        asgi.check_origin(headers)
    else:
        with pytest.raises(ApiError, match=code):
            asgi.check_origin(headers)


def test_oauth_metadata_stands_where_there_is_an_authorization_server(settings: Any) -> None:
    settings.MCP_URL = "https://accessa.example.org/mcp"
    settings.ALLOWED_HOSTS = ["accessa.example.org"]
    client = TestClient(asgi.build_application(), base_url="https://accessa.example.org")
    path = "/.well-known/oauth-protected-resource"

    assert client.get(path).status_code == 404
    assert "resource_metadata" not in client.get("/mcp").headers.get("www-authenticate", "")
    settings.MCP_AUTHORIZATION_SERVER = "https://auth.example.org"

    for address in (path, f"{path}/mcp"):
        metadata = client.get(address).json()
        assert (metadata["resource"], metadata["authorization_servers"]) == (
            settings.MCP_URL,
            ["https://auth.example.org"],
        )
    challenge = asgi.refuse(ApiError(NOT_AUTHENTICATED)).headers["www-authenticate"]
    assert challenge.endswith(
        'resource_metadata="https://accessa.example.org/.well-known/oauth-protected-resource/mcp"'
    )


class LeavingClient:
    """The request of a client that closes its connection while a tool runs."""

    scope = {CALLER: Caller(uuid4())}

    async def is_disconnected(self) -> bool:
        return True


def test_a_tool_learns_that_its_client_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def buy(call: tools.ToolCall) -> dict[str, Any]:
        wait_until(lambda: not call.is_connected(), seconds=10)
        raise ClientGone

    search = tools.TOOLS["search"]
    monkeypatch.setitem(tools.TOOLS, "search", replace(search, run=buy))
    context = SimpleNamespace(request=LeavingClient())
    params = CallToolRequestParams(name="search", arguments={"query": "x"})

    with capture_logs() as lines:
        outcome = asyncio.run(server_handlers._call_tool(context, params))

    assert (outcome.is_error, outcome.content) == (True, [])
    assert [line["code"] for line in lines] == ["CLIENT_GONE"]


# A process


@pytest.fixture
def server() -> Iterator[str]:
    port = free_port()
    environment = os.environ | {
        "DATABASE_URL": database_url(database_params()),
        "PUBLIC_URL": f"http://127.0.0.1:{port}",
    }
    command = [sys.executable, "manage.py", "serve_mcp", "--bind", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, cwd=configured.BASE_DIR, env=environment, stderr=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: answers(url), seconds=60)
        yield f"{url}/mcp"
    finally:
        process.terminate()
        _, log = process.communicate(timeout=30)
    assert "acc_" not in log
    assert "secret illness" not in log
    assert log.count('"Tool call."') == 7
    assert process.returncode in (0, -15)


def answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/healthz", timeout=2).ok
    except requests.RequestException:
        return False


async def drive(url: str, token: str, mode: Any) -> dict[str, Any]:
    """List and call what the SDK's client finds."""
    found: Any
    read: Any
    refused: Any
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, read_timeout_seconds=30) as client,
    ):
        listed = await client.list_tools()
        found = await client.call_tool("search", {"query": "What is the deductible of the secret illness?"})
        read = await client.call_tool("fetch", {"id": found.structured_content["results"][0]["id"]})
        refused = await client.call_tool("fetch", {"id": "nothing"})
        resources = await client.list_resources()
        with pytest.raises(MCPError) as missing:
            await client.read_resource(f"accessa://documents/{uuid4()}")
        with pytest.raises(MCPError, match="The tools are"):
            await client.call_tool("no_such_tool", {})
    return {
        "tools": [tool.name for tool in listed.tools],
        "text": read.structured_content["text"],
        "refused": (refused.is_error, json.loads(refused.content[0].text)["code"]),
        "resources": [resource.name for resource in resources.resources],
        "missing": missing.value.data["code"],
    }


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_the_official_client_searches_and_reads(server: str, ana: Person, ben: Person) -> None:
    create_searchable_document(ana.id, ["The deductible of the secret illness is 500 dollars a year."])

    for mode in ("auto", "legacy"):
        seen = asyncio.run(drive(server, ana.token, mode))
        assert seen == {
            "tools": ["search", "fetch", "answer", "list_documents", "document_status"],
            "text": "The deductible of the secret illness is 500 dollars a year.",
            "refused": (True, "NOT_FOUND"),
            "resources": ["plan.pdf"],
            "missing": "NOT_FOUND",
        }

    bearer = {"authorization": f"Bearer {ana.token}", **ACCEPT}
    call = {"name": "search", "arguments": {"query": "deductible"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    foreign = requests.post(server, json=body, headers=bearer | {"authorization": f"Bearer {ben.token}"}, timeout=30)
    assert foreign.json()["result"]["structuredContent"] == {"results": []}
    assert foreign.headers["x-correlation-id"]
    refusals = [
        requests.post(server, json=LIST_TOOLS, headers=ACCEPT, timeout=30),
        requests.post(server, json=LIST_TOOLS, headers=bearer | {"authorization": "Bearer acc_forged"}, timeout=30),
        requests.post(server, json=LIST_TOOLS, headers=bearer | {"origin": "https://evil.example.org"}, timeout=30),
        requests.post(server, json=LIST_TOOLS, headers=bearer | {"host": "evil.example.org"}, timeout=30),
        requests.get(server, headers=bearer, timeout=30),
        requests.delete(server, headers=bearer, timeout=30),
    ]
    assert [(refused.status_code, refused.json()["code"]) for refused in refusals] == [
        (401, "NOT_AUTHENTICATED"), (401, "INVALID_TOKEN"), (403, "FORBIDDEN"), (400, "INVALID_REQUEST"),
        (405, "METHOD_NOT_ALLOWED"), (405, "METHOD_NOT_ALLOWED"),
    ]  # fmt: skip
    assert refusals[0].headers["www-authenticate"] == 'Bearer realm="accessa"'
    too_large = requests.post(server, data=b"{" * 300_000, headers=bearer, timeout=30)
    garbage = [
        requests.post(server, data=data, headers=bearer | {"content-type": "application/json"}, timeout=30)
        for data in (b"", b"[]", b"{", b"[" * 10_000, b"\xff", b'{"jsonrpc":"2.0","id":{},"method":7}')
    ]
    assert too_large.status_code == 413
    assert {refused.status_code for refused in garbage} == {400}
