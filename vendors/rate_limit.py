"""Rate limits of vendors: requests and tokens a minute, shared by all processes.

GCRA keeps one time a row, the theoretical arrival: when all that was spent is paid off at the rate of the limit.
"""

import math
import random
from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db import connection, transaction

from jobs.outcomes import Wait
from vendors.error_codes import VENDOR_BUDGET, VENDOR_RATE_LIMITED
from vendors.vendor_account import Vendor

# Enough for OpenAI's largest call at the default budget; any sixty seconds see at most the budget and a half.
BURST_SECONDS = 30
# Pauses after 429s: the first where the vendor names none, then twice as long each time, up to the minute by which
# vendors count, and a random part, so that two deployments with one key do not come back together.
LIMITED_SECONDS, LONGEST_BACKOFF = 5.0, 60.0
JITTER = 0.25

CREATE = "INSERT INTO vendor_rate_limits (key) SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING"
SPEND = """
UPDATE vendor_rate_limits r SET theoretical_arrival = s.arrival
FROM unnest(%s::text[], %s::timestamptz[]) s (key, arrival) WHERE r.key = s.key
"""
PAUSE = """
INSERT INTO vendor_rate_limits AS r (key, paused_until, pause_reason)
VALUES (%(key)s, clock_timestamp() + make_interval(secs => %(seconds)s), %(reason)s)
ON CONFLICT (key) DO UPDATE SET paused_until = excluded.paused_until, pause_reason = excluded.pause_reason
WHERE r.paused_until IS NULL OR r.paused_until < excluded.paused_until
"""
SELECT_THROTTLES = """
SELECT throttles, extract(epoch FROM clock_timestamp() - paused_until)::float FROM vendor_rate_limits WHERE key = %s"""
SET_THROTTLES = "UPDATE vendor_rate_limits SET throttles = %s WHERE key = %s"


class TokenBudgetSpent(Wait):
    """A call has to wait for ``VENDOR_BUDGET``; one of ``tokens_left`` would not."""

    def __init__(self, seconds: float, tokens_left: int) -> None:
        super().__init__(seconds, VENDOR_BUDGET)
        self.tokens_left = tokens_left


def row_keys(vendor: Vendor) -> list[str]:
    """Return the rows of a vendor key: its requests (and its pause), and its tokens if it counts any."""
    return [vendor.key, f"{vendor.key}:tokens"] if vendor.tokens_per_minute else [vendor.key]


def burst_size(per_minute: int) -> int:
    """Return how many requests, or tokens, of a limit may be spent at once."""
    return math.ceil(per_minute * BURST_SECONDS / 60)


def spend(vendor: Vendor, arrivals: Mapping[str, datetime | None], *, tokens: int, now: datetime) -> None:
    """Spend one request and ``tokens``, both or neither, or raise ``Wait("VENDOR_BUDGET")``, ``TokenBudgetSpent``.

    ``arrivals`` are the rows as the current transaction has locked them, ``now`` is the database's time.
    """
    updates: dict[str, datetime] = {}
    limits = (f"{vendor.key}:tokens", vendor.tokens_per_minute, tokens), (vendor.key, vendor.requests_per_minute, 1)
    for key, limit, weight in limits:
        if limit and weight:
            interval = timedelta(microseconds=math.ceil(60_000_000 / limit))
            burst = burst_size(limit)
            arrival = max(arrivals[key] or now, now)
            # A call of more than the burst goes when nothing is owed, and owes the rest of it.
            wait = arrival + (min(weight, burst) - burst) * interval - now
            if wait > timedelta():
                seconds = max(wait.total_seconds(), 0.001)
                if key != vendor.key:
                    raise TokenBudgetSpent(seconds, max(0, (now - arrival) // interval + burst))
                raise Wait(seconds, VENDOR_BUDGET)
            updates[key] = arrival + weight * interval
    if updates:
        with connection.cursor() as cursor:
            cursor.execute(SPEND, [list(updates), list(updates.values())])


def pause(vendor: Vendor, seconds: float, reason: str) -> None:
    """Hold back all calls of all processes for ``seconds``; a longer pause that is in force stays."""
    with connection.cursor() as cursor:
        cursor.execute(PAUSE, {"key": vendor.key, "seconds": seconds, "reason": reason})


def back_off(vendor: Vendor, seconds: float) -> float:
    """Hold back all calls after a 429 that asks for ``seconds``; return for how long: never less.

    Each 429 that comes soon after the last one's pause doubles it; those of calls that were under way do not.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(CREATE, [[vendor.key]])
        cursor.execute(f"{SELECT_THROTTLES} FOR UPDATE", [vendor.key])
        throttles, since_pause = cursor.fetchone()
        is_paused = throttles and since_pause is not None and since_pause < 0
        throttles = throttles if is_paused else _recent(throttles, since_pause) + 1
        cursor.execute(SET_THROTTLES, [throttles, vendor.key])
        seconds = max(seconds, _backoff_seconds(throttles, seconds)) * random.uniform(1, 1 + JITTER)  # noqa: S311
        pause(vendor, seconds, VENDOR_RATE_LIMITED)
    return seconds


def count_throttles(vendor: Vendor) -> int:
    """Return how many times in a row the vendor has answered 429, up to now: each soon after the last one's pause."""
    with connection.cursor() as cursor:
        cursor.execute(SELECT_THROTTLES, [vendor.key])
        return _recent(*(cursor.fetchone() or (0, None)))


def _recent(throttles: int, since_pause: float | None) -> int:
    is_recent = since_pause is not None and since_pause < _backoff_seconds(throttles, LIMITED_SECONDS)
    return throttles if is_recent else 0


def _backoff_seconds(throttles: int, first: float) -> float:
    return min(LONGEST_BACKOFF, first * 2.0 ** min(throttles - 1, 10))
