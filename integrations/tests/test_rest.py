"""A provider's REST API: requests, errors, limits of time and size."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from django.conf import LazySettings

from integrations.error_codes import SCOPES_MISSING
from integrations.models import ConnectedSource
from integrations.providers.interface import TokenRefused
from integrations.transports.responses import MOST_BYTES, TooLarge
from integrations.transports.rest import RestTransport
from jobs.outcomes import Permanent, Retryable, Wait
from testing.fakes.faults import FAULTS, http_error
from testing.fakes.http_messages import ErrorResponse, Request, Response, json_response
from testing.fakes.server import Server
from vendors.calls import VendorRefused
from vendors.models import Breaker

TOKEN = "t0ken-of-ana"
PROSE = "ana@example.com may not"

pytestmark = pytest.mark.django_db


class Provider(Server):
    """Answers what it is told to, and keeps what it was asked."""

    said: Any = {"ok": True}
    body: bytes | None = None

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Request] = []
        self.failing: Response | None = None

    def respond(self, request: Request) -> Response:
        self.asked.append(request)
        if self.failing:
            raise ErrorResponse(self.failing)
        return Response(200, self.body) if self.body is not None else json_response(self.said)

    def error_response(self, status: int, code: str | None = None) -> Response:
        return json_response({"status": "error", "message": PROSE, "category": code}, status)


@pytest.fixture
def provider(settings: LazySettings) -> Iterator[Provider]:
    with Provider() as provider:
        known = {**settings.CONNECTORS["hubspot"], "api_url": f"{provider.url}/api/"}
        settings.CONNECTORS = {**settings.CONNECTORS, "hubspot": known}
        settings.VENDOR_TIMEOUT_SECONDS = 20
        yield provider


@pytest.fixture
def rest(provider: Provider) -> RestTransport:
    return RestTransport(ConnectedSource(id=uuid4(), provider="hubspot"), TOKEN, requests_per_minute=6_000)


def ask(rest: RestTransport, **more: Any) -> dict[str, Any]:
    return rest.json("GET", "/things", operation="list", **more)


def outcome(rest: RestTransport) -> Exception:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        ask(rest)
    return raised.value


def google(status: int, reason: str) -> Response:
    return json_response({"error": {"code": status, "message": PROSE, "errors": [{"reason": reason}]}}, status)


def test_a_call_carries_the_token_and_its_parameters(provider: Provider, rest: RestTransport) -> None:
    body = ask(rest, params={"after": "7", "limit": 5, "none": None})

    assert body == {"ok": True}
    assert provider.asked[0].target == "/api/things?after=7&limit=5"
    assert provider.asked[0].bearer == TOKEN


def test_money_keeps_its_digits(provider: Provider, rest: RestTransport) -> None:
    provider.body = b'{"balance": 239.00, "large": 12345678901234567.89, "count": 3}'

    body = ask(rest)

    assert [str(body["balance"]), str(body["large"])] == ["239.00", "12345678901234567.89"]
    assert isinstance(body["balance"], Decimal)
    assert body["count"] == 3


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[1]", b"null", b'{"a": NaN}', b'{"a": 1e999999}', b'{"a": ' + b"[" * 99_999, b"\xff\xfe"],
)
def test_a_response_that_is_no_object_counts_as_the_providers_fault(
    provider: Provider, rest: RestTransport, body: bytes
) -> None:
    provider.body = body

    error = outcome(rest)

    assert isinstance(error, Retryable)
    assert error.code == "VENDOR_ANSWER_INVALID"


def test_a_refused_token_pauses_no_other_account(provider: Provider, rest: RestTransport) -> None:
    provider.inject_fault("*", "status-401")

    assert isinstance(outcome(rest), TokenRefused)
    assert ask(rest) == {"ok": True}  # the next call is not held back


@pytest.mark.parametrize("reason", ["rateLimitExceeded", "userRateLimitExceeded"])
def test_googles_rate_limit_403_is_a_wait(provider: Provider, rest: RestTransport, reason: str) -> None:
    provider.failing = replace(google(403, reason), headers={"Retry-After": "9"})

    error = outcome(rest)

    assert isinstance(error, Wait)
    assert error.seconds == 9
    assert error.reason == "VENDOR_RATE_LIMITED"
    assert isinstance(outcome(rest), Wait)
    assert len(provider.asked) == 1  # held back before the call


@pytest.mark.parametrize(
    "answer",
    [
        google(403, "dailyLimitExceeded"),
        json_response({"status": "error", "policyName": "DAILY", "category": "RATE_LIMITS"}, 429),
    ],
)
def test_a_days_quota_waits_longer(provider: Provider, rest: RestTransport, answer: Response) -> None:
    provider.failing = answer

    error = outcome(rest)

    assert isinstance(error, Wait)
    assert (error.seconds, error.reason) == (600, "VENDOR_QUOTA_EXHAUSTED")


def test_429_waits_as_long_as_it_says(provider: Provider, rest: RestTransport) -> None:
    provider.inject_fault("*", http_error(429, retry_after="4"))

    error = outcome(rest)

    assert isinstance(error, Wait)
    assert error.seconds == 4


def test_two_accounts_do_not_wait_for_each_other(provider: Provider, rest: RestTransport) -> None:
    other = RestTransport(ConnectedSource(id=uuid4(), provider="hubspot"), "another", requests_per_minute=6_000)
    provider.inject_fault("*", http_error(429, retry_after="4"))

    assert isinstance(outcome(rest), Wait)
    assert ask(other) == {"ok": True}


@pytest.mark.parametrize(
    "answer",
    [
        google(403, "insufficientPermissions"),
        json_response({"error": {"details": [{"reason": "ACCESS_TOKEN_SCOPE_INSUFFICIENT"}]}}, 403),
        json_response({"status": "error", "category": "MISSING_SCOPES", "message": PROSE}, 403),
    ],
)
def test_missing_scopes_end_the_sync_with_their_code(provider: Provider, rest: RestTransport, answer: Response) -> None:
    provider.failing = answer

    error = outcome(rest)

    assert isinstance(error, Permanent)
    assert error.code == SCOPES_MISSING


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (google(404, "notFound"), "notFound"),
        (google(403, "exportSizeLimitExceeded"), "exportSizeLimitExceeded"),
        (json_response({"Fault": {"Error": [{"Message": PROSE, "code": "610"}]}}, 400), "610"),
        (json_response({"fault": {"error": [{"message": PROSE, "code": "3100"}]}}, 403), "3100"),
        (json_response({"error": PROSE}, 400), None),
        (Response(418, b"\x00not json"), None),
    ],
)
def test_an_error_has_the_providers_code_and_never_its_prose(
    provider: Provider, rest: RestTransport, answer: Response, code: str | None
) -> None:
    provider.failing = answer

    error = outcome(rest)

    assert isinstance(error, VendorRefused)
    assert (error.status, error.vendor_code) == (answer.status, code)
    assert PROSE not in f"{error!r} {error.__cause__!r} {vars(error.__cause__)}"


def test_provider_faults_open_the_accounts_circuit_breaker(
    provider: Provider, rest: RestTransport, settings: LazySettings
) -> None:
    settings.VENDOR_BREAKER_FAULTS = 2
    provider.inject_fault("*", "status-503", times=2)

    first, second = outcome(rest), outcome(rest)

    assert isinstance(first, Retryable)
    assert isinstance(second, Wait)
    assert Breaker.objects.get(key=rest.vendor.circuit).state == "open"


def test_redirections_are_not_followed(provider: Provider, rest: RestTransport) -> None:
    provider.inject_fault("*", "redirect-302")

    assert isinstance(outcome(rest), Retryable)
    assert provider.requests == 1


@pytest.mark.parametrize("kind", ["reset", "reset-mid-body", "truncated-body", "truncated-json"])
def test_a_broken_connection_is_retried(provider: Provider, rest: RestTransport, kind: str) -> None:
    provider.inject_fault("*", FAULTS[kind])

    assert isinstance(outcome(rest), Retryable)


def test_a_slow_response_is_cut_off_at_the_calls_time_limit(
    provider: Provider, rest: RestTransport, settings: LazySettings
) -> None:
    settings.VENDOR_TIMEOUT_SECONDS = 0.3
    provider.said = {"long": "x" * 1_000}
    provider.inject_fault("*", "one-byte-a-second")

    error = outcome(rest)

    assert isinstance(error, Retryable)
    assert error.code == "VENDOR_UNREACHABLE"


def test_an_answer_is_read_up_to_a_size(provider: Provider, rest: RestTransport) -> None:
    provider.body = b'{"long": "' + b"x" * MOST_BYTES + b'"}'

    error = outcome(rest)

    assert isinstance(error, Retryable)
    assert error.code == "VENDOR_ANSWER_INVALID"


def test_a_file_is_read_up_to_a_size(provider: Provider, rest: RestTransport) -> None:
    provider.body = b"%PDF" + b"x" * 200_000

    assert b"".join(rest.stream("/file", operation="download", most=200_004)) == provider.body
    with pytest.raises(TooLarge):
        b"".join(rest.stream("/file", operation="download", most=200_003))


@pytest.mark.parametrize("id", ["../secrets", "a?b=c", "a#b", "a\\b", "a\nb", "..", "./x"])
def test_an_id_that_changes_the_path_is_not_requested(provider: Provider, rest: RestTransport, id: str) -> None:
    with pytest.raises(Retryable):
        rest.json("GET", f"/files/{id}", operation="get")

    assert not provider.asked


def test_connections_are_reused_and_cookies_are_dropped(provider: Provider, rest: RestTransport) -> None:
    provider.failing = json_response({}, 404, {"Set-Cookie": "session=of-ana; Path=/"})
    outcome(rest)
    outcome(rest)

    assert provider._listener is not None
    assert len(provider._listener.connections) == 1
    assert all("cookie" not in request.headers for request in provider.asked)


def test_nothing_of_a_call_is_logged(provider: Provider, rest: RestTransport, caplog: pytest.LogCaptureFixture) -> None:
    provider.inject_fault("*", "status-401")
    with caplog.at_level(logging.INFO):
        outcome(rest)
        ask(rest, params={"q": "ana@example.com"})

    output = caplog.text.replace("\n", " ")
    assert TOKEN not in output
    assert "ana@example.com" not in output
