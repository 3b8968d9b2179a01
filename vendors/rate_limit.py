"""How fast: requests and tokens a minute of one vendor key, counted once for all processes.

The limiter library's own PostgresBucket writes a row for every token and locks the whole table; GCRA keeps one number.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import lru_cache
from math import ceil
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from pyrate_limiter import Duration, Rate, RateItem
from pyrate_limiter.abstracts.algorithm import GCRA, Decision, State, StateAlgorithm
from pyrate_limiter.abstracts.store import StateStore
from pyrate_limiter.buckets.redis_state import RedisStateStore
from pyrate_limiter.buckets.state_bucket import StateBucket

from jobs.outcomes import Wait
from vendors.error_codes import VENDOR_BUDGET
from vendors.vendor import Vendor

BUDGET_USED = VENDOR_BUDGET
# Enough for OpenAI's largest call at the default budget; any sixty seconds see at most the budget and a half.
BURST_SECONDS = 30
REDIS_AWAY_SECONDS = 5.0

WRITE = "UPDATE vendor_rate_limits p SET state = v.state FROM (VALUES {rows}) v (key, state) WHERE p.key = v.key"
CREATE = "INSERT INTO vendor_rate_limits (key, state) SELECT k, '{}' FROM unnest(%s::text[]) k ON CONFLICT DO NOTHING"
PAUSE = """
INSERT INTO vendor_rate_limits AS p (key, state, paused_until, pause_reason)
VALUES (%(key)s, '{}', clock_timestamp() + make_interval(secs => %(seconds)s), %(reason)s)
ON CONFLICT (key) DO UPDATE SET paused_until = excluded.paused_until, pause_reason = excluded.pause_reason
WHERE p.paused_until IS NULL OR p.paused_until < excluded.paused_until
"""


class Overdraft(GCRA):
    """GCRA that lets a call of more than the burst go when the bucket is full, and owes the rest of it."""

    def step(self, rates: list[Rate], state: State, now: int, weight: int) -> tuple[State, Decision]:
        fits = min(weight, *(rate.burst for rate in rates))
        after, decision = super().step(rates, state, now, fits)
        if not decision.allowed:
            return after, decision
        owed = weight - fits
        return tuple(tat + owed * self._emission_us(rate) for rate, tat in zip(rates, after, strict=True)), decision


class HeldState(StateStore):
    """The state of one row of ``vendor_rate_limits`` that the present transaction has locked."""

    def __init__(self, state: Sequence[int]) -> None:
        self.state: State = tuple(state)

    def check(self, algorithm: StateAlgorithm, rates: list[Rate], now: int, weight: int) -> Decision:
        self.state, decision = algorithm.step(rates, self.read(algorithm, rates), now, weight)
        return decision

    def read(self, algorithm: StateAlgorithm, rates: list[Rate]) -> State:
        return self.state if len(self.state) == len(rates) else algorithm.initial(rates)

    def reset(self) -> None:
        self.state = ()


def row_keys(vendor: Vendor) -> list[str]:
    """Return the rows of a vendor key: its requests (and its pause), and its tokens if it counts any."""
    return [vendor.key, f"{vendor.key}:tokens"] if vendor.tokens_per_minute else [vendor.key]


def create_rows(vendor: Vendor) -> None:
    with connection.cursor() as cursor:
        cursor.execute(CREATE, [row_keys(vendor)])


def acquire(vendor: Vendor, states: dict[str, Sequence[int]], *, tokens: int, now: int) -> None:
    """Spend one request and ``tokens``, both or neither, or raise ``Wait("VENDOR_BUDGET")``.

    ``states`` are the rows as the present transaction has locked them, ``now`` is the database's clock in ms.
    """
    asked = [(key, limit, weight) for key, limit, weight in _asked(vendor, tokens) if limit and weight]
    if settings.VENDOR_BUDGET_REDIS_URL:
        _take_from_redis(asked, now)
        return
    held = {key: HeldState(states[key]) for key, _, _ in asked}
    for key, limit, weight in asked:
        _put(StateBucket([_rate(limit)], Overdraft(), held[key]), key, weight, now)
    _write(held)


def _asked(vendor: Vendor, tokens: int) -> list[tuple[str, int, int]]:
    # Tokens first: in Redis, where the two are not one transaction, what is lost between them is then on the safe side.
    return [(f"{vendor.key}:tokens", vendor.tokens_per_minute, tokens), (vendor.key, vendor.requests_per_minute, 1)]


def _rate(limit: int) -> Rate:
    return Rate(limit, Duration.MINUTE, burst=ceil(limit * BURST_SECONDS / 60))


def _put(bucket: StateBucket, key: str, weight: int, now: int) -> None:
    item = RateItem(key, now, weight)
    if not bucket.put(item):
        wait = bucket.waiting(item)
        raise Wait(max(wait, 1) / 1000 if isinstance(wait, int) else 1.0, BUDGET_USED)


def _write(held: dict[str, HeldState]) -> None:
    if held:
        sql = WRITE.format(rows=", ".join(["(%s, %s::bigint[])"] * len(held)))
        rows = [(key, [int(number) for number in store.state]) for key, store in held.items()]
        with connection.cursor() as cursor:
            cursor.execute(sql, [value for row in rows for value in row])


def _take_from_redis(asked: list[tuple[str, int, int]], now: int) -> None:
    """Look at all first, then spend: a call that one of them refuses costs the others nothing, but for a race."""
    redis = _redis()
    try:
        buckets = [
            (StateBucket([_rate(limit)], GCRA(), RedisStateStore(redis, f"accessa:pace:{key}")), key, limit, weight)
            for key, limit, weight in asked
        ]
        for looking in (True, False):
            for bucket, key, limit, weight in buckets:
                capped = min(weight, _rate(limit).burst)  # the library's script refuses more for ever
                store = HeldState([int(n) for n in bucket.store.read(bucket.algorithm, bucket.rates)])  # type: ignore[union-attr]
                _put(StateBucket(bucket.rates, GCRA(), store) if looking else bucket, key, capped, now)
    except _redis_module().exceptions.RedisError as error:
        raise Wait(REDIS_AWAY_SECONDS, BUDGET_USED) from error


@lru_cache(maxsize=1)
def _redis_at(url: str) -> Any:
    return _redis_module().Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5)


def _redis() -> Any:
    return _redis_at(settings.VENDOR_BUDGET_REDIS_URL)


def _redis_module() -> Any:
    try:
        return importlib.import_module("redis")
    except ImportError as error:
        raise ImproperlyConfigured(
            "VENDOR_BUDGET_REDIS_URL needs the redis package: pip install -r requirements/optional.txt"
        ) from error


def pause(vendor: Vendor, seconds: float, reason: str) -> None:
    """Hold back all calls of all processes for ``seconds``; a longer pause that is in force stays."""
    with connection.cursor() as cursor:
        cursor.execute(PAUSE, {"key": vendor.key, "seconds": seconds, "reason": reason})
