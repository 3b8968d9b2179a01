"""Rate limit of requests and tokens, shared by all processes, by the database's clock."""

import time

import pytest
from django.db import connection, transaction
from pytest_django import DjangoAssertNumQueries

from jobs.outcomes import Wait
from vendors import calls, rate_limit
from vendors.models import RateLimit
from vendors.tests.http_server import Answer, Server, embed, error_of
from vendors.tests.process_pool import in_processes
from vendors.vendor_account import Vendor

pytestmark = pytest.mark.django_db(transaction=True)


def vendor_with(**limits: int) -> Vendor:
    allowed = {"requests_per_minute": 600, "tokens_per_minute": 6_000} | limits
    return Vendor("openai", "sk-secret", allowed["requests_per_minute"], allowed["tokens_per_minute"])


def refused_wait(vendor: Vendor, tokens: int = 0) -> Wait:
    """Return why a call is held back; inside a transaction, where nothing sleeps."""
    with pytest.raises(Wait) as caught, transaction.atomic():
        calls.acquire(vendor, tokens=tokens)
    return caught.value


def count_acquired(vendor: Vendor, tokens: int, until: float) -> int:
    """Call as fast as the budget lets one process until the wall clock says ``until``."""
    admitted = 0
    while time.time() < until:
        try:
            with transaction.atomic():
                calls.acquire(vendor, tokens=tokens)
            admitted += time.time() < until
        except Wait as postponed:
            time.sleep(min(postponed.seconds, 0.02))
    return admitted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "tokens", "of_the_minute"),
    [({"requests_per_minute": 120}, 1, 120), ({"tokens_per_minute": 1_200}, 10, 120)],
    ids=["requests", "tokens"],
)
def test_four_processes_together_stay_within_the_budget(
    limits: dict[str, int], tokens: int, of_the_minute: int
) -> None:
    vendor = vendor_with(**{"requests_per_minute": 100_000, "tokens_per_minute": 1_000_000} | limits)
    seconds = 3.0

    started = time.time()
    admitted = sum(in_processes(4, count_acquired, vendor, tokens, started + seconds))

    burst = of_the_minute * rate_limit.BURST_SECONDS / 60
    allowed = burst + of_the_minute * seconds / 60
    assert allowed * 0.9 <= admitted <= allowed + 1


def test_one_more_request_than_the_burst_waits_for_its_turn() -> None:
    vendor = vendor_with(requests_per_minute=2)
    calls.acquire(vendor)

    wait = refused_wait(vendor)

    assert wait.reason == "VENDOR_BUDGET"
    assert wait.seconds == pytest.approx(30, abs=1)


def test_requests_and_tokens_are_taken_together_or_not_at_all() -> None:
    vendor = vendor_with(requests_per_minute=4, tokens_per_minute=6_000)
    calls.acquire(vendor, tokens=3_000)
    before = dict(RateLimit.objects.values_list("key", "theoretical_arrival"))

    held_back = refused_wait(vendor, tokens=1_000)

    assert held_back.reason == "VENDOR_BUDGET"
    assert dict(RateLimit.objects.values_list("key", "theoretical_arrival")) == before


def test_requests_that_are_used_up_cost_no_tokens() -> None:
    vendor = vendor_with(requests_per_minute=2)
    calls.acquire(vendor)
    before = RateLimit.objects.get(key__endswith=":tokens").theoretical_arrival

    refused_wait(vendor, tokens=10)

    assert RateLimit.objects.get(key__endswith=":tokens").theoretical_arrival == before


def test_a_call_larger_than_the_burst_passes_and_delays_the_next() -> None:
    vendor = vendor_with(tokens_per_minute=6_000)
    calls.acquire(vendor, tokens=12_000)

    wait = refused_wait(vendor, tokens=1)

    assert wait.seconds == pytest.approx(90, abs=2)  # 12,000 at 100 a second, 3,000 of them the burst


def test_two_keys_of_one_vendor_are_two_budgets() -> None:
    calls.acquire(vendor_with(requests_per_minute=2))

    calls.acquire(Vendor("openai", "sk-another", requests_per_minute=2))


def test_a_vendor_without_limits_is_never_held_back() -> None:
    for _ in range(20):
        calls.acquire(Vendor("brain", "secret", requests_per_minute=0))


@pytest.mark.slow
def test_a_short_wait_is_slept_through() -> None:
    vendor = vendor_with(tokens_per_minute=6_000)  # 100 a second, 3,000 at once
    started = time.monotonic()
    calls.acquire(vendor, tokens=3_000)

    calls.acquire(vendor, tokens=150)

    assert 1.4 < time.monotonic() - started < 20


def test_nothing_sleeps_inside_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "SLEEP_SECONDS", 60)
    vendor = vendor_with(tokens_per_minute=6_000)
    calls.acquire(vendor, tokens=3_000)

    wait = refused_wait(vendor, tokens=3_000)  # where it slept, it would pass

    assert 0 < wait.seconds < 60


def test_a_rollback_gives_the_budget_back() -> None:
    vendor = vendor_with(requests_per_minute=2)

    with transaction.atomic():
        calls.acquire(vendor)
        transaction.set_rollback(True)

    calls.acquire(vendor)


def test_the_clock_is_the_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    vendor = vendor_with(requests_per_minute=2)
    calls.acquire(vendor)

    monkeypatch.setattr(time, "time", lambda: 4e9)  # this machine believes that it is 2096
    wait = refused_wait(vendor)

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM theoretical_arrival - clock_timestamp()) FROM vendor_rate_limits WHERE key = %s",
            [vendor.key],
        )
        (owed_seconds,) = cursor.fetchone()
    assert 0 < owed_seconds <= 30
    assert wait.seconds == pytest.approx(30, abs=1)


def test_a_429_holds_back_every_process(server: Server, vendor: Vendor) -> None:
    server.answer = Answer(429, {"retry-after": "20"})
    calls.record_failure(vendor, error_of(embed, server.url))

    reasons = in_processes(2, reason_and_seconds, vendor)

    assert [reason for reason, _ in reasons] == ["VENDOR_RATE_LIMITED"] * 2
    assert all(15 < seconds <= 25 for _, seconds in reasons)


def end_pause(vendor: Vendor, *, seconds_ago: float) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE vendor_rate_limits SET paused_until = clock_timestamp() - make_interval(secs => %s)", [seconds_ago]
        )


def back_off(vendor: Vendor, server: Server) -> float:
    outcome = calls.record_failure(vendor, error_of(embed, server.url))
    assert isinstance(outcome, Wait)
    return outcome.seconds


@pytest.mark.parametrize(
    ("headers", "pauses"),
    [({}, (5, 10, 20, 40, 60, 60)), ({"retry-after": "2"}, (2, 4, 8, 16, 32, 60)), ({"retry-after": "90"}, (90, 90))],
)
def test_the_pause_grows_with_each_429_that_follows_a_pause(
    headers: dict[str, str], pauses: tuple[int, ...], server: Server, vendor: Vendor
) -> None:
    server.answer = Answer(429, headers)

    for seconds in pauses:
        assert seconds <= back_off(vendor, server) <= seconds * (1 + rate_limit.JITTER)
        end_pause(vendor, seconds_ago=0)


def test_429s_of_calls_under_way_are_counted_once(server: Server, vendor: Vendor) -> None:
    server.answer = Answer(429)

    pauses = [back_off(vendor, server) for _ in range(5)]

    assert all(5 <= seconds <= 6.25 for seconds in pauses)
    assert len(set(pauses)) > 1  # the random part
    assert rate_limit.count_throttles(vendor) == 1


def test_a_quiet_time_ends_the_growth(server: Server, vendor: Vendor) -> None:
    server.answer = Answer(429)
    back_off(vendor, server)
    end_pause(vendor, seconds_ago=0)
    back_off(vendor, server)
    grown = rate_limit.count_throttles(vendor)

    end_pause(vendor, seconds_ago=11)

    assert (grown, rate_limit.count_throttles(vendor)) == (2, 0)
    assert back_off(vendor, server) <= 6.25


def test_a_call_that_is_too_large_for_now_learns_how_large_it_may_be() -> None:
    vendor = vendor_with(tokens_per_minute=6_000)
    calls.acquire(vendor, tokens=2_000)

    wait = refused_wait(vendor, tokens=3_000)

    assert isinstance(wait, rate_limit.TokenBudgetSpent)
    assert 1_000 <= wait.tokens_left < 3_000
    calls.acquire(vendor, tokens=wait.tokens_left)


def reason_and_seconds(vendor: Vendor) -> tuple[str, float]:
    wait = refused_wait(vendor)
    return wait.reason, wait.seconds


def test_a_longer_pause_outlives_a_shorter_one(vendor: Vendor) -> None:
    rate_limit.pause(vendor, 100, "VENDOR_QUOTA_EXHAUSTED")
    rate_limit.pause(vendor, 5, "VENDOR_RATE_LIMITED")

    assert refused_wait(vendor).reason == "VENDOR_QUOTA_EXHAUSTED"


def test_a_used_up_allowance_pauses_until_its_reset(vendor: Vendor) -> None:
    calls.record_success(vendor, {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"})

    wait = refused_wait(vendor)

    assert wait.reason == "VENDOR_RATE_LIMITED"
    assert wait.seconds == pytest.approx(360, abs=2)


def test_a_remaining_allowance_pauses_nothing(vendor: Vendor) -> None:
    calls.record_success(vendor, {"x-ratelimit-remaining-tokens": "7", "x-ratelimit-reset-tokens": "6m0s"})

    calls.acquire(vendor)


def test_a_healthy_call_costs_three_statements_and_their_transaction(
    vendor: Vendor, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    calls.acquire(vendor, tokens=10)

    with django_assert_num_queries(3 + 2):  # BEGIN and COMMIT
        calls.acquire(vendor, tokens=10)
        calls.record_success(vendor, {"x-ratelimit-remaining-tokens": "100"})
