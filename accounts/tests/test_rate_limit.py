"""Rate limits: never more uses than the limit in any window, whatever the spans, transactions and connections."""

import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction

from accounts import periodic, rate_limit
from accounts.errors import ApiError
from accounts.models import RateWindow
from accounts.rate_limit import Limit, check_rate, remove_last_use
from testing.concurrency import run_concurrently

pytestmark = pytest.mark.django_db
LONG = Limit(rate_limit.POLL_LIMIT_REACHED, "long", 5, 86_400, "{} a day")
SHORT = Limit(rate_limit.POLL_LIMIT_REACHED, "short", 3, 1.0, "{} a second")


def is_allowed(limit: Limit, subject: str = "ana") -> bool:
    try:
        check_rate(limit, subject)
    except ApiError:
        return False
    return True


def poll(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
    return True


def test_uses_beyond_the_limit_are_refused_for_the_length_of_the_window() -> None:
    assert [is_allowed(LONG) for _ in range(7)] == [True] * 5 + [False] * 2
    assert is_allowed(LONG, "ben")

    with pytest.raises(ApiError, match="5 a day") as refused:
        check_rate(LONG, "ana")
    assert 86_390 < int(refused.value.headers["Retry-After"]) <= 86_400


def test_no_window_has_more_uses_than_the_limit_and_a_use_is_free_again_soon_after_it() -> None:
    limit = int(SHORT.uses)
    uses: list[tuple[float, float]] = []
    deadline = time.monotonic() + 30
    while len(uses) < 3 * limit and time.monotonic() < deadline:
        asked_at = time.monotonic()
        if is_allowed(SHORT):
            uses.append((asked_at, time.monotonic()))

    assert len(uses) == 3 * limit
    # The server counts between the two times.
    waits = [answered_at - asked_at for (asked_at, _), (_, answered_at) in zip(uses, uses[limit:], strict=False)]
    assert min(waits) > SHORT.seconds - 0.01


def test_a_refused_use_is_not_counted() -> None:
    while is_allowed(SHORT):
        pass

    assert poll(lambda: is_allowed(SHORT))  # although it asks all the time


def test_the_uses_of_a_span_share_a_row() -> None:
    for _ in range(int(LONG.uses)):
        check_rate(LONG, "ana")

    assert RateWindow.objects.count() <= 2  # two at the turn of a span
    assert sum(window.uses for window in RateWindow.objects.all()) == LONG.uses


def test_a_use_that_is_removed_can_be_made_again() -> None:
    while is_allowed(LONG):
        pass
    remove_last_use(LONG, "ana")

    assert [is_allowed(LONG) for _ in range(2)] == [True, False]
    remove_last_use(LONG, "nobody")


def test_a_limit_of_zero_refuses_every_use(settings: Any) -> None:
    settings.SEARCHES_PER_MINUTE = 0

    assert not is_allowed(rate_limit.SEARCHES)
    assert not RateWindow.objects.exists()


def test_rows_of_ended_windows_are_deleted() -> None:
    check_rate(SHORT, "ana")
    check_rate(LONG, "ana")
    row = RateWindow.objects.get(key="short:ana")
    assert row.used_at < row.expires_at

    def delete_and_count() -> int:
        periodic.delete_expired_rate_windows()
        return RateWindow.objects.count()

    assert poll(lambda: delete_and_count() == 1)
    assert RateWindow.objects.get().key == "long:ana"


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_concurrent_uses_of_one_tenant_are_all_counted() -> None:
    limit = Limit(rate_limit.POLL_LIMIT_REACHED, "race", 100, 86_400)
    subject = str(uuid4())

    allowed = run_concurrently(*[lambda: sum(is_allowed(limit, subject) for _ in range(40)) for _ in range(8)])

    assert sum(allowed) == 100


@pytest.mark.django_db(transaction=True)
def test_a_use_waits_for_no_other_request_of_the_tenant() -> None:
    """What a request does after it was counted, a commit to the disk say, holds up nobody."""

    def count_then_work() -> bool:
        check_rate(LONG, "ana")
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            return poll(lambda: RateWindow.objects.filter(uses=2).exists())

    assert all(run_concurrently(count_then_work, count_then_work))


@pytest.mark.django_db(transaction=True)
def test_a_count_without_waiting_for_the_disk_changes_no_other_commit() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")  # the tests' server has it off
        check_rate(LONG, "ana")
        after = _show(cursor)
        with transaction.atomic():
            check_rate(LONG, "ana")
            inside = _show(cursor)
        cursor.execute("RESET synchronous_commit")

    assert (after, inside) == ("on", "on")


def _show(cursor: Any) -> str:
    cursor.execute("SHOW synchronous_commit")
    return str(cursor.fetchone()[0])
