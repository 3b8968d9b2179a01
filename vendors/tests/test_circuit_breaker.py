"""Circuit breaker shared by processes: opens after consecutive failures, lets one probe pass, closes."""

import threading
import time
from typing import Any

import pytest
from django.db import connection

from jobs.outcomes import Retryable, Wait
from testing.concurrency import run_concurrently
from vendors import calls
from vendors.models import Breaker
from vendors.tests.http_server import Answer, Server, embed, error_of
from vendors.tests.process_pool import in_processes
from vendors.vendor_account import Vendor

pytestmark = pytest.mark.django_db(transaction=True)


def record_failures(vendor: Vendor, times: int = 1) -> Exception:
    for _ in range(times):
        outcome = calls.record_failure(vendor, TimeoutError("no answer"))
    return outcome


def expire_pause() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE vendor_breakers SET opened_at = opened_at - interval '1 hour'")


def expire_probe() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE vendor_breakers SET probe_until = clock_timestamp() - interval '1 second'")


def try_acquire(vendor: Vendor) -> bool:
    try:
        calls.acquire(vendor)
    except Wait:
        return False
    return True


def try_acquire_in_thread(vendor: Vendor) -> bool:
    """Acquire in another thread, which does not probe."""
    return run_concurrently(lambda: try_acquire(vendor))[0]


def breaker_state() -> str:
    return Breaker.objects.get().state


def test_consecutive_failures_open_the_breaker_and_the_last_costs_no_attempt(vendor: Vendor) -> None:
    first, second, third = (record_failures(vendor) for _ in range(3))

    assert isinstance(first, Retryable)
    assert isinstance(second, Retryable)
    assert isinstance(third, Wait)
    assert third.reason == "VENDOR_AWAY"
    assert calls.is_circuit_open(vendor)


def test_a_success_between_failures_resets_the_count(vendor: Vendor) -> None:
    record_failures(vendor, 2)
    calls.record_success(vendor)
    record_failures(vendor, 2)

    assert not calls.is_circuit_open(vendor)


def test_a_429_is_no_failure(vendor: Vendor, server: Server) -> None:
    server.answer = Answer(429)
    error = error_of(embed, server.url)

    for _ in range(10):
        calls.record_failure(vendor, error)

    assert not calls.is_circuit_open(vendor)


def test_calls_wait_for_the_probe_while_the_breaker_is_open(vendor: Vendor, settings: Any) -> None:
    record_failures(vendor, 3)

    with pytest.raises(Wait) as caught:
        calls.acquire(vendor)

    assert caught.value.reason == "VENDOR_AWAY"
    assert 0 < caught.value.seconds <= settings.VENDOR_BREAKER_SECONDS


def test_a_call_that_is_held_back_spends_no_budget(vendor: Vendor) -> None:
    calls.acquire(vendor)
    record_failures(vendor, 3)
    with connection.cursor() as cursor:
        cursor.execute("SELECT array_agg(theoretical_arrival ORDER BY key) FROM vendor_rate_limits")
        before = cursor.fetchone()
        try_acquire(vendor)
        cursor.execute("SELECT array_agg(theoretical_arrival ORDER BY key) FROM vendor_rate_limits")
        assert cursor.fetchone() == before


def test_failures_are_counted_over_processes(vendor: Vendor) -> None:
    in_processes(3, record_one_failure, vendor)

    assert breaker_state() == "open"
    assert in_processes(2, try_acquire, vendor) == [False, False]


def record_one_failure(vendor: Vendor) -> None:
    record_failures(vendor)


def test_one_of_eight_probes(vendor: Vendor) -> None:
    calls.acquire(vendor)
    record_failures(vendor, 3)
    expire_pause()

    probing = run_concurrently(*[lambda: try_acquire(vendor)] * 8)

    assert sum(probing) == 1
    assert breaker_state() == "half-open"
    assert calls.is_circuit_open(vendor)


def test_one_of_four_processes_probes(vendor: Vendor) -> None:
    record_failures(vendor, 3)
    expire_pause()

    assert sum(in_processes(4, try_acquire, vendor)) == 1


def test_a_due_probe_is_not_held_back(vendor: Vendor) -> None:
    record_failures(vendor, 3)
    expire_pause()

    assert not calls.is_circuit_open(vendor)  # or a fallback would be taken for ever, and nobody would ask


def test_a_successful_probe_closes_it(vendor: Vendor, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "accessa.vendors")
    record_failures(vendor, 3)
    expire_pause()
    calls.acquire(vendor)

    calls.record_success(vendor)

    assert breaker_state() == "closed"
    assert try_acquire_in_thread(vendor)
    messages = [record.getMessage() for record in caplog.records if record.name == "accessa.vendors"]
    assert messages == ["Vendor openai is away: calls wait 15 s for a probe.", "Vendor openai is back."]


@pytest.mark.parametrize("status", [400, 401, 429])
def test_a_refused_probe_closes_the_breaker(status: int, vendor: Vendor, server: Server) -> None:
    record_failures(vendor, 3)
    expire_pause()
    calls.acquire(vendor)
    server.answer = Answer(status)

    calls.record_failure(vendor, error_of(embed, server.url))

    assert breaker_state() == "closed"


def test_a_failed_probe_reopens_the_breaker_and_costs_no_attempt(vendor: Vendor) -> None:
    record_failures(vendor, 3)
    expire_pause()
    calls.acquire(vendor)

    outcome = record_failures(vendor)

    assert isinstance(outcome, Wait)
    assert breaker_state() == "open"
    assert not try_acquire_in_thread(vendor)


def test_a_late_failure_does_not_fail_the_probe(vendor: Vendor) -> None:
    record_failures(vendor, 3)
    expire_pause()
    calls.acquire(vendor)

    late = run_concurrently(lambda: record_failures(vendor))[0]

    assert isinstance(late, Wait)
    assert breaker_state() == "half-open"


def test_a_late_success_does_not_close_it(vendor: Vendor) -> None:
    record_failures(vendor, 3)

    run_concurrently(lambda: calls.record_success(vendor))

    assert breaker_state() == "open"


def test_a_probe_of_a_dead_worker_expires(vendor: Vendor) -> None:
    record_failures(vendor, 3)
    expire_pause()
    in_processes(1, try_acquire, vendor)
    before = try_acquire_in_thread(vendor)

    expire_probe()

    assert (before, try_acquire_in_thread(vendor)) == (False, True)


def test_a_probe_that_ends_by_a_bug_is_released_at_once(vendor: Vendor) -> None:
    record_failures(vendor, 3)
    expire_pause()
    calls.acquire(vendor)

    calls.record_failure(vendor, KeyError("a bug"))

    assert try_acquire_in_thread(vendor)


def test_an_unreported_probe_does_not_excuse_a_later_failure(vendor: Vendor) -> None:
    record_failures(vendor, 3)
    expire_pause()
    calls.acquire(vendor)
    Breaker.objects.all().delete()

    calls.acquire(vendor)

    assert isinstance(record_failures(vendor), Retryable)


def test_a_probe_without_budget_leaves_the_breaker_open() -> None:
    vendor = Vendor("openai", "sk-secret", requests_per_minute=2)
    calls.acquire(vendor)
    record_failures(vendor, 3)
    expire_pause()

    with pytest.raises(Wait) as caught:
        calls.acquire(vendor)

    assert caught.value.reason == "VENDOR_BUDGET"
    assert breaker_state() == "open"


def test_eight_reports_at_once_are_all_counted(vendor: Vendor, settings: Any) -> None:
    settings.VENDOR_BREAKER_FAULTS = 100

    run_concurrently(*[lambda: record_one_failure(vendor)] * 8)

    assert Breaker.objects.get().faults == 8


def test_the_clock_is_the_databases(vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 4e9)  # this machine believes that it is 2096
    record_failures(vendor, 3)

    with connection.cursor() as cursor:
        cursor.execute("SELECT abs(extract(epoch FROM clock_timestamp() - opened_at)) < 5 FROM vendor_breakers")
        assert cursor.fetchone() == (True,)


def test_no_lock_is_held_while_a_call_is_under_way(vendor: Vendor) -> None:
    inside, done = threading.Event(), threading.Event()

    def slow() -> bool:
        with calls.guarded_call(vendor, "ask"):
            inside.set()
            return done.wait(10)

    def quick() -> bool:
        inside.wait(10)
        with calls.guarded_call(vendor, "ask"):
            done.set()
        return True

    assert run_concurrently(slow, quick) == [True, True]
