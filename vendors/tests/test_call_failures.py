"""Outcomes of failed calls: every row of the failure table, with real clients and a real server."""

import errno
from collections.abc import Callable
from typing import Any, NamedTuple

import openai
import pytest
from django.db import OperationalError

from jobs.claims import ClaimLost
from jobs.outcomes import Permanent, Retryable, Wait
from testing.error_codes import error_code
from vendors import call_failures, calls, rate_limit
from vendors.models import Breaker, RateLimit
from vendors.tests.http_server import CLIENTS, Answer, Server, embed, error_of, json_body
from vendors.vendor_account import Vendor

pytestmark = pytest.mark.django_db


class Outcome(NamedTuple):
    """What becomes of a call: the exception, its code or reason, its seconds, a fault, a pause, maybe charged."""

    kind: type[Exception]
    name: str
    seconds: float = 0.0
    fault: bool = False
    charged: bool = False

    @property
    def pauses(self) -> bool:
        return self.kind is Wait


def _unavailable(seconds: float = 0.0, charged: bool = True) -> Outcome:
    return Outcome(Retryable, "VENDOR_UNAVAILABLE", seconds, fault=True, charged=charged)


QUOTA = json_body(error={"message": "of Ana", "type": "insufficient_quota", "code": "insufficient_quota"})
LIMIT = json_body(error={"message": "of Ana", "type": "requests", "code": "rate_limit_exceeded"})
INVALID = Outcome(Retryable, "VENDOR_ANSWER_INVALID", fault=True, charged=True)
UNREACHABLE = Outcome(Retryable, "VENDOR_UNREACHABLE", fault=True, charged=True)
LIMITED, EXHAUSTED = "VENDOR_RATE_LIMITED", "VENDOR_QUOTA_EXHAUSTED"
PAST = {"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}
RESET = {"retry-after": "1", "x-ratelimit-reset-tokens": "6m0s"}
NAMED = json_body(error={"code": "invalid_input"})

# fmt: off
TABLE: dict[str, tuple[Answer, Outcome]] = {
    "429":                       (Answer(429, {}, LIMIT), Outcome(Wait, LIMITED, 5)),
    "429 seconds":               (Answer(429, {"retry-after": "7"}, LIMIT), Outcome(Wait, LIMITED, 7)),
    "429 milliseconds":          (Answer(429, {"retry-after-ms": "1500"}, LIMIT), Outcome(Wait, LIMITED, 1.5)),
    "429 date":                  (Answer(429, PAST, LIMIT), Outcome(Wait, LIMITED, 0.5)),
    "429 at once":               (Answer(429, {"retry-after": "0"}, LIMIT), Outcome(Wait, LIMITED, 0.5)),
    "429 reset":                 (Answer(429, RESET, LIMIT), Outcome(Wait, LIMITED, 360)),
    "429 for a day":             (Answer(429, {"retry-after": "86400"}, LIMIT), Outcome(Wait, LIMITED, 600)),
    "429 nonsense":              (Answer(429, {"retry-after": "soon"}, b"<html>"), Outcome(Wait, LIMITED, 5)),
    "429 number for a code":     (Answer(429, {}, json_body(error={"code": 429})), Outcome(Wait, LIMITED, 5)),
    "429 quota":                 (Answer(429, {"retry-after": "1"}, QUOTA), Outcome(Wait, EXHAUSTED, 600)),
    "402":                       (Answer(402), Outcome(Wait, EXHAUSTED, 600)),
    "401":                       (Answer(401), Outcome(Wait, "VENDOR_REFUSES_KEY", 60)),
    "403":                       (Answer(403, {}, b"<html>"), Outcome(Wait, "VENDOR_REFUSES_KEY", 60)),
    "408":                       (Answer(408), _unavailable()),
    "409":                       (Answer(409), _unavailable(charged=False)),
    "500":                       (Answer(500), _unavailable()),
    "502 html":                  (Answer(502, {"content-type": "text/html"}, b"<html>Bad gateway"), _unavailable()),
    "503 with Retry-After":      (Answer(503, {"retry-after": "30"}), _unavailable(30)),
    "529":                       (Answer(529), _unavailable()),
    "reset":                     (Answer(reset=True), UNREACHABLE),
    "timeout":                   (Answer(delay=0.8), UNREACHABLE),
    "html":                      (Answer(200, {"content-type": "text/html"}, b"<html>"), INVALID),
    "garbage":                   (Answer(body=b"\xff\xfe{"), INVALID),
    "truncated JSON":            (Answer(body=b'{"data": [{"emb'), INVALID),
    "truncated body":            (Answer(body=b'{"data": [', missing=50), INVALID),
    "nothing":                   (Answer(body=b""), INVALID),
    "a list":                    (Answer(body=b"[1, 2]"), INVALID),
    "bad gzip":                  (Answer(200, {"content-encoding": "gzip"}, b"nonsense"), INVALID),
    "endless redirect":          (Answer(302, {"location": "/again"}, b""), INVALID),
    "400":                       (Answer(400, {}, NAMED), Outcome(Permanent, "VENDOR_REFUSED")),
    "404":                       (Answer(404), Outcome(Permanent, "VENDOR_REFUSED")),
    "413":                       (Answer(413), Outcome(Permanent, "VENDOR_REFUSED")),
    "422":                       (Answer(422, {}, json_body(detail="of Ana")), Outcome(Permanent, "VENDOR_REFUSED")),
}
# fmt: on


def outcome_of(outcome: Exception) -> tuple[type[Exception], str, float]:
    if isinstance(outcome, Wait):
        return Wait, outcome.reason, outcome.seconds
    assert isinstance(outcome, (Retryable, Permanent)), repr(outcome)
    kind = Retryable if isinstance(outcome, Retryable) else Permanent
    return kind, outcome.code, getattr(outcome, "retry_after", 0.0)


@pytest.mark.parametrize("call", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize(("answer", "expected"), TABLE.values(), ids=TABLE)
def test_each_response_has_its_outcome(
    answer: Answer, expected: Outcome, call: Callable[..., object], vendor: Vendor, server: Server
) -> None:
    server.answer = answer
    error = error_of(call, server.url, **({"seconds": 0.4} if answer.delay else {}))

    outcome = calls.record_failure(vendor, error)

    kind, name, seconds = outcome_of(outcome)
    assert (kind, name) == (expected.kind, expected.name)
    longest = expected.seconds * (1 + rate_limit.JITTER if name == LIMITED else 1)
    assert expected.seconds - 0.001 <= seconds <= longest + 0.001
    assert bool(Breaker.objects.filter(faults__gt=0)) == expected.fault
    assert bool(RateLimit.objects.filter(paused_until__isnull=False)) == expected.pauses
    assert call_failures.may_have_charged(error) == call_failures.may_have_charged(outcome) == expected.charged
    assert outcome.__cause__ is error
    assert "Ana" not in str(outcome)
    assert "secret" not in str(outcome)


@pytest.mark.parametrize("call", CLIENTS.values(), ids=CLIENTS)
def test_a_refused_connection_is_a_failure_and_charges_nothing(call: Callable[[str], object], vendor: Vendor) -> None:
    error = error_of(call, "http://127.0.0.1:1")

    outcome = calls.record_failure(vendor, error)

    assert outcome_of(outcome) == (Retryable, "VENDOR_UNREACHABLE", 0.0)
    assert not call_failures.may_have_charged(outcome)


def test_an_unknown_host_is_a_failure_and_charges_nothing(vendor: Vendor) -> None:
    error = error_of(embed, "http://nowhere.invalid")

    assert outcome_of(calls.record_failure(vendor, error)) == (Retryable, "VENDOR_UNREACHABLE", 0.0)
    assert not call_failures.may_have_charged(error)


def test_an_unusable_response_is_a_failure(vendor: Vendor) -> None:
    outcome = calls.record_failure(vendor, call_failures.InvalidResponse("3 vectors for 4 texts"))

    assert outcome_of(outcome) == (Retryable, "VENDOR_ANSWER_INVALID", 0.0)
    assert call_failures.may_have_charged(outcome)


def test_a_refusal_carries_its_status_and_the_vendors_name_for_it(vendor: Vendor, server: Server) -> None:
    server.answer = Answer(400, {}, json_body(error={"code": "max_tokens_per_request", "message": "of Ana"}))

    outcome = calls.record_failure(vendor, error_of(embed, server.url))

    assert isinstance(outcome, calls.VendorRefused)
    assert (outcome.status, outcome.vendor_code) == (400, "max_tokens_per_request")


def test_a_vendor_code_that_is_a_sentence_is_dropped(vendor: Vendor, server: Server) -> None:
    server.answer = Answer(400, {}, json_body(error={"code": "the text of Ana is too long"}))

    outcome = calls.record_failure(vendor, error_of(embed, server.url))

    assert isinstance(outcome, calls.VendorRefused)
    assert outcome.vendor_code is None


@pytest.mark.parametrize(
    "error",
    [
        Retryable(error_code("EMBEDDER_AWAY"), "It is away."),
        Permanent(error_code("BUDGET_TOO_SMALL"), "Too small."),
        Wait(3, error_code("BUDGET_SPENT")),
        ClaimLost("job"),
        OperationalError("the database is away"),
        TypeError("a bug"),
        KeyError("a bug"),
        ValueError("a bug"),
        OSError(errno.ENOSPC, "the disk is full"),
        FileNotFoundError("a file of ours"),
    ],
    ids=repr,
)
def test_our_own_errors_are_returned_unchanged(error: Exception, vendor: Vendor) -> None:
    assert calls.record_failure(vendor, error) is error
    assert not Breaker.objects.exists()


def test_a_wrong_argument_to_a_client_is_no_vendor_failure(vendor: Vendor, server: Server) -> None:
    def wrong(client: Any) -> Exception:
        return error_of(lambda _: client.embeddings.create(input=[object()], model="m"), "")

    with openai.OpenAI(api_key="k", base_url=server.url, max_retries=0) as client:
        unserializable = wrong(client)

    assert isinstance(calls.record_failure(vendor, unserializable), TypeError)


def test_a_guarded_call_reports_a_failure_and_raises_its_outcome(vendor: Vendor, server: Server) -> None:
    server.answer = Answer(500)

    with pytest.raises(Retryable, match="VENDOR_UNAVAILABLE") as caught, calls.guarded_call(vendor, "ask", tokens=10):
        embed(server.url)

    assert isinstance(caught.value.__cause__, openai.InternalServerError)
    assert Breaker.objects.get().faults == 1


def test_a_guarded_call_lets_a_bug_through(vendor: Vendor) -> None:
    with pytest.raises(KeyError), calls.guarded_call(vendor, "ask"):
        raise KeyError("a bug")


@pytest.mark.parametrize(("status", "level"), [(401, "ERROR"), (402, "ERROR")])
def test_a_refused_key_is_logged_without_the_key(
    status: int, level: str, vendor: Vendor, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = Answer(status, {}, json_body(error={"message": "Incorrect API key provided: sk-secret"}))

    calls.record_failure(vendor, error_of(embed, server.url))

    assert [record.levelname for record in caplog.records if record.name == "accessa.vendors"] == [level]
    assert "sk-secret" not in caplog.text
