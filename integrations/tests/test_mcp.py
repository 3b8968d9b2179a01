"""MCP sessions with a provider's server, over the SDK's own server side: errors, limits, sizes."""

import logging
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from django.conf import LazySettings

from integrations.models import ConnectedSource
from integrations.providers.interface import CapabilityMissing, TokenRefused
from integrations.transports.mcp import McpSession
from integrations.transports.responses import TooLarge
from jobs.outcomes import Retryable, Wait
from testing.fakes.mcp import TOKEN, McpFault, McpServer, Tool
from vendors.calls import VendorRefused

PROSE = "ana@example.com may not read Renewal of Acme"

pytestmark = pytest.mark.django_db

WORD = {"type": "string"}
MADE = {
    "echo": Tool({"text": WORD}, lambda said: {"said": said, "price": 239.10}),
    "texts": Tool({}, lambda said: ["Found 1:", '{"Id": "1"}']),
    "large": Tool({}, lambda said: {"content": "x" * 300_000}),
    "late": Tool({}, lambda said: {}),
}


@pytest.fixture(scope="module")
def running() -> Iterator[McpServer]:
    with McpServer(MADE) as server:
        yield server


def lead_to(url: str, settings: LazySettings) -> None:
    settings.CONNECTORS = {**settings.CONNECTORS, "gmail": {**settings.CONNECTORS["gmail"], "mcp_url": url}}


@pytest.fixture
def server(running: McpServer, settings: LazySettings) -> McpServer:
    running.clear_faults()
    lead_to(running.url, settings)
    settings.VENDOR_TIMEOUT_SECONDS = 20
    return running


@pytest.fixture
def tools(server: McpServer) -> Iterator[McpSession]:
    tools = McpSession(ConnectedSource(id=uuid4(), provider="gmail"), TOKEN)
    yield tools
    tools.close()


def call(tools: McpSession, tool: str = "echo", most: int | None = None, **arguments: Any) -> dict[str, Any]:
    return tools.call(tool, arguments, operation="get", most=most, read=dict)


def outcome(tools: McpSession, tool: str = "echo") -> Exception:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        call(tools, tool)
    return raised.value


def test_all_pages_of_the_listing_are_read_once(server: McpServer, tools: McpSession) -> None:
    assert list(tools.names()) == list(tools.names()) == ["echo", "texts", "large", "late"]
    assert tools.names()["echo"]["properties"] == {"text": WORD}
    assert server.requests.count("tools/list") == 2


def test_one_session_serves_all_calls_of_a_page(server: McpServer, tools: McpSession) -> None:
    for text in ("a", "b", "c"):
        assert call(tools, text=text)["said"] == {"text": text}

    assert server.requests.count("server/discover") == 1


@pytest.mark.parametrize("structured", [True, False])
def test_money_keeps_its_digits(server: McpServer, tools: McpSession, structured: bool) -> None:
    server.structured = structured

    params = call(tools)

    server.structured = True
    assert params["price"] == Decimal("239.1")
    assert isinstance(params["price"], Decimal)


def test_a_response_that_is_no_object_is_returned_as_texts(tools: McpSession) -> None:
    assert call(tools, "texts") == {"texts": ["Found 1:", '{"Id": "1"}']}


def test_a_token_refused_mid_session_pauses_no_other_account(server: McpServer, tools: McpSession) -> None:
    call(tools)
    server.tokens.clear()

    assert isinstance(outcome(tools), TokenRefused)

    server.tokens.add(TOKEN)
    assert call(tools)  # in a session of its own


def test_a_token_refused_at_once_raises_the_same_error(server: McpServer, tools: McpSession) -> None:
    server.tokens.clear()

    with pytest.raises(TokenRefused):
        tools.names()


def test_429_waits_as_long_as_it_says(server: McpServer, tools: McpSession) -> None:
    server.inject_fault("tools/call *", McpFault(status=429, headers={"Retry-After": "7"}, prose=PROSE))

    error = outcome(tools)

    assert isinstance(error, Wait)
    assert (error.seconds, error.reason) == (7, "VENDOR_RATE_LIMITED")


@pytest.mark.parametrize("status", [500, 502, 503])
def test_5xx_is_retried(server: McpServer, tools: McpSession, status: int) -> None:
    server.inject_fault("tools/call *", McpFault(status=status, prose=PROSE))

    error = outcome(tools)

    assert isinstance(error, Retryable)
    assert error.code == "VENDOR_UNAVAILABLE"


@pytest.mark.parametrize(
    ("payload", "expected", "code"),
    [
        ('{"status": "error", "category": "EXPIRED_AUTHENTICATION", "message": "%s"}', TokenRefused, None),
        ("Error: Request failed with status code 401: %s", TokenRefused, None),
        ('{"status": "error", "category": "RATE_LIMITS", "message": "%s"}', Wait, None),
        ("HTTP 503: %s", Retryable, "VENDOR_UNAVAILABLE"),
        ("Requested entity was not found. %s", VendorRefused, "VENDOR_REFUSED"),
        ("Something went wrong: %s", Retryable, "TOOL_FAILED"),
        ("%s has 401 things and 429 others", Retryable, "TOOL_FAILED"),
    ],
)
def test_a_tools_error_keeps_only_its_code(
    server: McpServer, tools: McpSession, payload: str, expected: type[Exception], code: str | None
) -> None:
    server.inject_fault("tool echo", McpFault(told=payload.replace("%s", PROSE)))

    error = outcome(tools)

    assert isinstance(error, expected)
    assert getattr(error, "code", None) == code
    assert PROSE not in f"{error!r} {error.__cause__!r} {error.__context__!r}"


@pytest.mark.parametrize("fault", [McpFault(delay=30), McpFault(drip=0.02)])
def test_a_call_ends_with_its_time(
    server: McpServer, tools: McpSession, settings: LazySettings, fault: McpFault
) -> None:
    call(tools)
    settings.VENDOR_TIMEOUT_SECONDS = 0.5
    tools.close()
    server.inject_fault("tools/call *", fault)

    error = outcome(tools)

    assert isinstance(error, Retryable)
    assert error.code == "VENDOR_UNREACHABLE"


def test_an_endless_response_is_cut_off(server: McpServer, tools: McpSession) -> None:
    server.inject_fault("tools/call *", McpFault(size=1 << 40))

    error = outcome(tools)

    assert isinstance(error, Retryable)
    assert error.code == "VENDOR_ANSWER_INVALID"


def test_a_file_is_read_up_to_a_size(tools: McpSession) -> None:
    assert len(call(tools, "large", most=1_000_000)["content"]) == 300_000
    with pytest.raises(TooLarge):
        call(tools, "large", most=299_000)


def test_an_unreachable_server_is_retried(server: McpServer, tools: McpSession, settings: LazySettings) -> None:
    lead_to("http://127.0.0.1:9/mcp", settings)

    error = outcome(McpSession(ConnectedSource(id=uuid4(), provider="gmail"), TOKEN))

    assert isinstance(error, Retryable)
    assert error.code == "VENDOR_UNREACHABLE"


@pytest.mark.parametrize("headers", [{"Content-Encoding": "gzip"}, {"Content-Type": "text/html"}])
def test_a_response_that_is_not_mcp_counts_as_the_servers_fault(
    server: McpServer, tools: McpSession, headers: dict[str, str]
) -> None:
    server.inject_fault("tools/call *", McpFault(size=1_000, headers=headers))

    error = outcome(tools)

    assert isinstance(error, Retryable)
    assert error.code == "VENDOR_ANSWER_INVALID"


def test_a_tool_that_is_gone_is_named(server: McpServer, tools: McpSession) -> None:
    server.inject_fault("tools/call *", McpFault(status=404))

    with pytest.raises(CapabilityMissing, match="echo"):
        call(tools)


@pytest.mark.parametrize("status", [400, 403, 410])
def test_a_refusal_is_permanent(server: McpServer, tools: McpSession, status: int) -> None:
    server.inject_fault("tools/call *", McpFault(status=status, prose=PROSE))

    error = outcome(tools)

    assert isinstance(error, VendorRefused)
    assert error.status == status


def test_older_servers_answer_by_streams_in_sessions(settings: LazySettings) -> None:
    with McpServer(MADE, sse=True) as server:
        server.inject_fault("server/discover", McpFault(status=404))
        lead_to(server.url, settings)
        tools = McpSession(ConnectedSource(id=uuid4(), provider="gmail"), TOKEN)

        params = call(tools, text="a")
        assert call(tools, "large")
        server.inject_fault("tools/call *", McpFault(status=429, headers={"Retry-After": "7"}))
        held = outcome(tools)
        tools.close()

    assert params["said"] == {"text": "a"}
    assert isinstance(held, Wait)
    assert "GET" not in server.requests
    assert server.requests[-1] == "DELETE"  # the session is not left behind


def test_nothing_of_a_call_is_logged(server: McpServer, tools: McpSession, caplog: pytest.LogCaptureFixture) -> None:
    server.inject_fault("tools/call *", McpFault(status=401, prose=PROSE))
    server.inject_fault("tool echo", McpFault(told=PROSE))
    with caplog.at_level(logging.DEBUG):
        outcome(tools)
        outcome(tools)
        call(tools, text=PROSE)

    ours = [record for record in caplog.records if not record.name.startswith(("asyncio", "uvicorn"))]
    payload = " ".join(record.getMessage() for record in ours)
    assert TOKEN not in payload
    assert PROSE not in payload
    assert not [record for record in ours if record.name.startswith(("mcp", "httpx", "httpcore"))]
