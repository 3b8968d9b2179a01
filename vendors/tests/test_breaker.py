"""One breaker for all processes: opens after consecutive faults, lets one probe, closes."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from django.db import connection

from jobs.outcomes import Retryable, Wait
from testing.concurrency import at_once
from vendors import guard
from vendors.models import Breaker
from vendors.tests.http_helpers import Answer, Server, embed, raised
from vendors.tests.process_helpers import in_processes
from vendors.vendor import Vendor

pytestmark = pytest.mark.django_db(transaction=True)


def fail(vendor: Vendor, times: int = 1) -> Exception:
    for _ in range(times):
        outcome = guard.record_failure(vendor, TimeoutError("no answer"))
    return outcome


def let_the_pause_pass() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE vendor_breakers SET opened_at = opened_at - interval '1 hour'")


def let_the_lease_pass() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE vendor_breakers SET probe_until = clock_timestamp() - interval '1 second'")


def admitted(vendor: Vendor) -> bool:
    try:
        guard.acquire(vendor)
    except Wait:
        return False
    return True


def elsewhere(vendor: Vendor) -> bool:
    """Ask from another thread: one that does not probe."""
    return at_once(lambda: admitted(vendor))[0]


def state() -> str:
    return Breaker.objects.get().state


def test_faults_in_a_row_open_it_and_the_last_costs_no_attempt(vendor: Vendor) -> None:
    first, second, third = (fail(vendor) for _ in range(3))

    assert isinstance(first, Retryable)
    assert isinstance(second, Retryable)
    assert isinstance(third, Wait)
    assert third.reason == "VENDOR_AWAY"
    assert guard.is_circuit_open(vendor)


def test_an_answer_between_faults_starts_the_count_again(vendor: Vendor) -> None:
    fail(vendor, 2)
    guard.record_success(vendor)
    fail(vendor, 2)

    assert not guard.is_circuit_open(vendor)


def test_a_429_is_no_fault(vendor: Vendor, server: Server) -> None:
    server.answer = Answer(429)
    error = raised(embed, server.url)

    for _ in range(10):
        guard.record_failure(vendor, error)

    assert not guard.is_circuit_open(vendor)


def test_while_it_is_open_calls_wait_for_the_probe(vendor: Vendor, settings: Any) -> None:
    fail(vendor, 3)

    with pytest.raises(Wait) as caught:
        guard.acquire(vendor)

    assert caught.value.reason == "VENDOR_AWAY"
    assert 0 < caught.value.seconds <= settings.VENDOR_BREAKER_SECONDS


def test_a_call_that_is_held_back_spends_no_budget(vendor: Vendor) -> None:
    guard.acquire(vendor)
    fail(vendor, 3)
    with connection.cursor() as cursor:
        cursor.execute("SELECT array_agg(theoretical_arrival ORDER BY key) FROM vendor_rate_limits")
        before = cursor.fetchone()
        admitted(vendor)
        cursor.execute("SELECT array_agg(theoretical_arrival ORDER BY key) FROM vendor_rate_limits")
        assert cursor.fetchone() == before


def test_its_faults_are_counted_over_processes(vendor: Vendor) -> None:
    in_processes(3, fail_once, vendor)

    assert state() == "open"
    assert in_processes(2, admitted, vendor) == [False, False]


def fail_once(vendor: Vendor) -> None:
    fail(vendor)


def test_one_of_eight_probes(vendor: Vendor) -> None:
    guard.acquire(vendor)
    fail(vendor, 3)
    let_the_pause_pass()

    probing = at_once(*[lambda: admitted(vendor)] * 8)

    assert sum(probing) == 1
    assert state() == "half-open"
    assert guard.is_circuit_open(vendor)


def test_one_of_four_processes_probes(vendor: Vendor) -> None:
    fail(vendor, 3)
    let_the_pause_pass()

    assert sum(in_processes(4, admitted, vendor)) == 1


def test_a_probe_that_is_due_is_not_kept_back(vendor: Vendor) -> None:
    fail(vendor, 3)
    let_the_pause_pass()

    assert not guard.is_circuit_open(vendor)  # or a fallback would be taken for ever, and nobody would ask


def test_a_probe_that_is_answered_closes_it(vendor: Vendor, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "accessa.vendors")
    fail(vendor, 3)
    let_the_pause_pass()
    guard.acquire(vendor)

    guard.record_success(vendor)

    assert state() == "closed"
    assert elsewhere(vendor)
    said = [record.getMessage() for record in caplog.records if record.name == "accessa.vendors"]
    assert said == ["Vendor openai is away: calls wait 15 s for a probe.", "Vendor openai is back."]


@pytest.mark.parametrize("status", [400, 401, 429])
def test_a_probe_that_is_refused_closes_it_too(status: int, vendor: Vendor, server: Server) -> None:
    fail(vendor, 3)
    let_the_pause_pass()
    guard.acquire(vendor)
    server.answer = Answer(status)

    guard.record_failure(vendor, raised(embed, server.url))

    assert state() == "closed"


def test_a_failed_probe_opens_it_again_and_costs_no_attempt(vendor: Vendor) -> None:
    fail(vendor, 3)
    let_the_pause_pass()
    guard.acquire(vendor)

    outcome = fail(vendor)

    assert isinstance(outcome, Wait)
    assert state() == "open"
    assert not elsewhere(vendor)


def test_a_fault_from_before_it_opened_does_not_fail_the_probe(vendor: Vendor) -> None:
    fail(vendor, 3)
    let_the_pause_pass()
    guard.acquire(vendor)

    late = at_once(lambda: fail(vendor))[0]

    assert isinstance(late, Wait)
    assert state() == "half-open"


def test_an_answer_from_before_it_opened_does_not_close_it(vendor: Vendor) -> None:
    fail(vendor, 3)

    at_once(lambda: guard.record_success(vendor))

    assert state() == "open"


def test_a_probe_whose_worker_died_is_made_again(vendor: Vendor) -> None:
    fail(vendor, 3)
    let_the_pause_pass()
    in_processes(1, admitted, vendor)
    before = elsewhere(vendor)

    let_the_lease_pass()

    assert (before, elsewhere(vendor)) == (False, True)


def test_a_probe_that_ended_by_a_bug_of_ours_is_made_again_at_once(vendor: Vendor) -> None:
    fail(vendor, 3)
    let_the_pause_pass()
    guard.acquire(vendor)

    guard.record_failure(vendor, KeyError("a bug"))

    assert elsewhere(vendor)


def test_a_probe_that_was_never_reported_does_not_excuse_a_later_fault(vendor: Vendor) -> None:
    fail(vendor, 3)
    let_the_pause_pass()
    guard.acquire(vendor)
    Breaker.objects.all().delete()

    guard.acquire(vendor)

    assert isinstance(fail(vendor), Retryable)


def test_a_probe_that_the_budget_holds_back_leaves_it_to_another() -> None:
    vendor = Vendor("openai", "sk-secret", requests_per_minute=2)
    guard.acquire(vendor)
    fail(vendor, 3)
    let_the_pause_pass()

    with pytest.raises(Wait) as caught:
        guard.acquire(vendor)

    assert caught.value.reason == "VENDOR_BUDGET"
    assert state() == "open"


def test_eight_reports_at_once_are_all_counted(vendor: Vendor, settings: Any) -> None:
    settings.VENDOR_BREAKER_FAULTS = 100

    at_once(*[lambda: fail_once(vendor)] * 8)

    assert Breaker.objects.get().faults == 8


def test_its_times_are_the_databases(vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 4e9)  # this machine believes that it is 2096
    fail(vendor, 3)

    with connection.cursor() as cursor:
        cursor.execute("SELECT abs(extract(epoch FROM clock_timestamp() - opened_at)) < 5 FROM vendor_breakers")
        assert cursor.fetchone() == (True,)


def test_no_lock_is_held_while_a_call_is_under_way(vendor: Vendor) -> None:
    inside, done = threading.Event(), threading.Event()

    def slow() -> bool:
        with guard.guarded_call(vendor, "ask"):
            inside.set()
            return done.wait(10)

    def quick() -> bool:
        inside.wait(10)
        with guard.guarded_call(vendor, "ask"):
            done.set()
        return True

    assert at_once(slow, quick) == [True, True]
