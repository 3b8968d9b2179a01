"""A vendor whose answers mean something of their own: each of its customers has a key."""

from __future__ import annotations

import pytest

from jobs.outcomes import Permanent, Retryable, Wait
from vendors import guard
from vendors.error_codes import VENDOR_RATE_LIMITED
from vendors.errors import ErrorResponse
from vendors.models import Breaker
from vendors.vendor import Vendor

pytestmark = pytest.mark.django_db


class KeyRefused(Exception):
    """A customer's key is no good."""


class Response:
    """As much of one as the gate looks at."""

    def __init__(self, status: int) -> None:
        self.status_code, self.headers = status, {"Retry-After": "3"}


def error(status: int) -> Exception:
    found = Exception(status)
    found.response = Response(status)  # type: ignore[attr-defined]
    return found


def meaning(answer: ErrorResponse) -> Exception | None:
    told: dict[int, Exception] = {401: KeyRefused(), 403: Wait(9, VENDOR_RATE_LIMITED), 500: KeyRefused()}
    return told.get(answer.status)


def call(vendor: Vendor, status: int) -> None:
    with guard.guarded_call(vendor, "get", interpret=meaning):
        raise error(status)


def test_the_meaning_is_raised_and_nobody_is_held_back(vendor: Vendor) -> None:
    with pytest.raises(KeyRefused):
        call(vendor, 401)

    guard.acquire(vendor)


def test_a_wait_holds_back_all_calls_of_the_key(vendor: Vendor) -> None:
    with pytest.raises(Wait):
        call(vendor, 403)

    with pytest.raises(Wait) as held:
        guard.acquire(vendor)
    assert held.value.seconds > 8


def test_what_has_no_meaning_of_its_own_means_what_it_does_with_all(vendor: Vendor) -> None:
    with pytest.raises(Permanent):
        call(vendor, 404)


def test_a_fault_stays_a_fault(vendor: Vendor) -> None:
    with pytest.raises(Retryable):
        call(vendor, 500)


def test_an_answer_that_has_a_meaning_shows_the_vendor_to_be_well(vendor: Vendor) -> None:
    for _ in range(2):
        with pytest.raises(Retryable):
            call(vendor, 500)
    with pytest.raises(KeyRefused):
        call(vendor, 401)

    assert Breaker.objects.get().faults == 0
