"""Status interpreter: a vendor whose 4xx mean something of their own, as each tenant has its own key."""

import pytest

from jobs.outcomes import Permanent, Retryable, Wait
from vendors import calls
from vendors.call_failures import ErrorResponse
from vendors.error_codes import VENDOR_RATE_LIMITED
from vendors.models import Breaker
from vendors.vendor_account import Vendor

pytestmark = pytest.mark.django_db


class KeyRefused(Exception):
    """A customer's key is no good."""


class Response:
    """As much of one as the gate looks at."""

    def __init__(self, status: int) -> None:
        self.status_code, self.headers = status, {"Retry-After": "3"}


def error_with_status(status: int) -> Exception:
    error = Exception(status)
    error.response = Response(status)  # type: ignore[attr-defined]
    return error


def interpret(answer: ErrorResponse) -> Exception | None:
    outcomes: dict[int, Exception] = {401: KeyRefused(), 403: Wait(9, VENDOR_RATE_LIMITED), 500: KeyRefused()}
    return outcomes.get(answer.status)


def call(vendor: Vendor, status: int) -> None:
    with calls.guarded_call(vendor, "get", interpret=interpret):
        raise error_with_status(status)


def test_the_interpreted_outcome_is_raised_without_a_pause(vendor: Vendor) -> None:
    with pytest.raises(KeyRefused):
        call(vendor, 401)

    calls.acquire(vendor)


def test_an_interpreted_wait_pauses_all_calls_of_the_key(vendor: Vendor) -> None:
    with pytest.raises(Wait):
        call(vendor, 403)

    with pytest.raises(Wait) as held:
        calls.acquire(vendor)
    assert held.value.seconds > 8


def test_an_uninterpreted_status_has_the_common_outcome(vendor: Vendor) -> None:
    with pytest.raises(Permanent):
        call(vendor, 404)


def test_a_server_error_is_not_interpreted(vendor: Vendor) -> None:
    with pytest.raises(Retryable):
        call(vendor, 500)


def test_an_interpreted_status_counts_as_a_success(vendor: Vendor) -> None:
    for _ in range(2):
        with pytest.raises(Retryable):
            call(vendor, 500)
    with pytest.raises(KeyRefused):
        call(vendor, 401)

    assert Breaker.objects.get().faults == 0
