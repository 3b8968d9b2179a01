"""The way to a vendor: a shared budget, a shared breaker, and one place that turns an answer into an outcome."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from django.conf import settings
from django.db import connection, transaction

from accounts.errors import ErrorCode, find_error_code
from jobs.outcomes import Permanent, Retryable, Wait
from vendors import call_metrics, circuit_breaker, errors, rate_limit
from vendors import rate_limit_headers as headers
from vendors.error_codes import (
    VENDOR_AWAY,
    VENDOR_QUOTA_EXHAUSTED,
    VENDOR_RATE_LIMITED,
    VENDOR_REFUSED,
    VENDOR_REFUSES_KEY,
    VENDOR_UNAVAILABLE,
)
from vendors.errors import InvalidResponse, may_have_charged
from vendors.models import Breaker, RateLimit
from vendors.vendor import Vendor

__all__ = [
    "InvalidResponse",
    "VendorRefused",
    "acquire",
    "delete_vendor_state",
    "guarded_call",
    "is_circuit_open",
    "may_have_charged",
    "record_failure",
    "record_success",
]

log = logging.getLogger("accessa.vendors")

AWAY, LIMITED, QUOTA, KEY = VENDOR_AWAY, VENDOR_RATE_LIMITED, VENDOR_QUOTA_EXHAUSTED, VENDOR_REFUSES_KEY
SLEEP_SECONDS = 2.0  # a shorter wait is slept through; for a longer one the job is put back
LIMITED_SECONDS, QUOTA_SECONDS, KEY_SECONDS = 5.0, 600.0, 60.0
LEAST_SECONDS = 0.5  # a vendor that says "at once" with every 429 is not asked without end

# The clock is read after the rows are locked: a call that waited for them has not come earlier.
HELD = f"""
WITH held AS MATERIALIZED (
    SELECT key, state, paused_until, pause_reason FROM vendor_rate_limits WHERE key = ANY(%(keys)s)
    ORDER BY key FOR UPDATE
)
SELECT held.key, held.state, held.pause_reason, extract(epoch FROM held.paused_until - clock_timestamp())::float,
       (extract(epoch FROM clock_timestamp()) * 1000)::bigint, ({circuit_breaker.WAIT})::float
FROM held LEFT JOIN vendor_breakers b ON b.key = %(key)s ORDER BY held.key
"""
LOOK = HELD.replace(" FOR UPDATE", "")  # with the budget in Redis there is nothing here to hold
IS_OPEN = f"SELECT ({circuit_breaker.WAIT}) > 0 FROM vendor_breakers b WHERE key = %(key)s"

# What an answer of 4xx means with a vendor whose ways are its own; None where it means what it does with all.
StatusInterpreter = Callable[[errors.ErrorResponse], Exception | None]


class Row(NamedTuple):
    """A row of ``vendor_rate_limits``, locked: seconds left of its pause, ms of the clock, seconds until a probe."""

    key: str
    state: list[int]
    reason: str | None
    paused: float | None
    now: int
    away: float | None


class VendorRefused(Permanent):
    """The vendor is well and will never do this. ``vendor_code`` is its own name for the reason, if it gave one."""

    def __init__(self, status: int, vendor_code: str | None) -> None:
        super().__init__(VENDOR_REFUSED, f"The vendor refused the request with status {status}.")
        self.status = status
        self.vendor_code = vendor_code


def acquire(vendor: Vendor, *, tokens: int = 0) -> None:
    """Let one call of ``tokens`` through, or raise ``Wait``: breaker open, told to pause, budget used up.

    Call it outside of transactions. Inside one it never sleeps, and holds the vendor's budget, so all other callers of
    the key, until the transaction ends; a rollback gives back what was taken.
    """
    until = time.monotonic() + SLEEP_SECONDS
    while True:
        try:
            with transaction.atomic():
                _admit(vendor, tokens)
            return
        except Wait as wait:
            seconds = wait.seconds
            patient = wait.reason != AWAY and time.monotonic() + seconds <= until
            if connection.in_atomic_block or not patient:
                raise
        time.sleep(seconds)


def _admit(vendor: Vendor, tokens: int) -> None:
    rows = _held(vendor)
    row = next(row for row in rows if row.key == vendor.key)
    if row.away is not None and row.away > 0:
        raise Wait(row.away, AWAY)
    if row.paused is not None and row.paused > 0:
        raise Wait(row.paused, find_error_code(row.reason) or LIMITED)
    rate_limit.acquire(vendor, {row.key: row.state for row in rows}, tokens=tokens, now=row.now)
    if row.away is None:
        circuit_breaker.discard_probe(vendor)
    elif not circuit_breaker.start_probe(vendor):
        raise Wait(circuit_breaker.params()["breaker_seconds"], AWAY)


def _held(vendor: Vendor) -> list[Row]:
    keys = rate_limit.row_keys(vendor)
    rows = _lock(vendor, keys)
    if len(rows) < len(keys):  # the first call ever
        rate_limit.create_rows(vendor)
        rows = _lock(vendor, keys)
    return rows


def _lock(vendor: Vendor, keys: list[str]) -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(
            LOOK if settings.VENDOR_BUDGET_REDIS_URL else HELD,
            {"keys": keys, "key": vendor.circuit, **circuit_breaker.params()},
        )
        return [Row(*row) for row in cursor.fetchall()]


def record_success(vendor: Vendor, headers: Mapping[str, str] | None = None) -> None:
    """Tell the breaker that the vendor answered, and the budget what its rate-limit headers say."""
    circuit_breaker.record_success(vendor)
    if headers:
        _note_allowance(vendor, headers)
    call_metrics.flush()


def _note_allowance(vendor: Vendor, said: Mapping[str, str]) -> None:
    if seconds := headers.quota_reset(said):
        rate_limit.pause(vendor, seconds, LIMITED)


def record_failure(vendor: Vendor, error: Exception, meaning: StatusInterpreter | None = None) -> Exception:
    """Tell the breaker and the budget of a failed call; return what to raise: Wait, Retryable or Permanent.

    What is no vendor's fault (an outcome already named, a lost claim, the database, a bug) comes back unchanged.
    """
    answer = errors.error_response(error)
    code = None if answer else errors.failure_code(error)
    if answer:
        outcome = _answered(vendor, answer, meaning)
    elif code:
        outcome = _fault(vendor, code)
    else:
        circuit_breaker.release_probe(vendor)
        return error
    call_metrics.flush()
    outcome.__cause__ = error
    return outcome


def _answered(vendor: Vendor, answer: errors.ErrorResponse, meaning: StatusInterpreter | None) -> Exception:
    status = answer.status
    if status >= 500 or status in (408, 409):
        return _fault(vendor, VENDOR_UNAVAILABLE, headers.retry_after(answer.headers) or 0.0)
    circuit_breaker.record_success(vendor)
    own = meaning(answer) if meaning else None
    if own is not None:
        return _paused(vendor, own.seconds, own.reason) if isinstance(own, Wait) else own
    if status == 402 or (status == 429 and answer.vendor_code == "insufficient_quota"):
        log.error("Vendor %s: the account's quota is exhausted.", vendor.name)
        return _paused(vendor, QUOTA_SECONDS, QUOTA)
    if status in (401, 403):
        log.error("Vendor %s refuses its key with status %d.", vendor.name, status)
        return _paused(vendor, KEY_SECONDS, KEY)
    if status == 429:
        told = headers.retry_after(answer.headers)
        return _paused(vendor, LIMITED_SECONDS if told is None else max(told, LEAST_SECONDS), LIMITED)
    return VendorRefused(status, answer.vendor_code)


def _paused(vendor: Vendor, seconds: float, reason: ErrorCode) -> Wait:
    rate_limit.pause(vendor, seconds, reason)
    return Wait(seconds, reason)


def _fault(vendor: Vendor, code: ErrorCode, retry_after: float = 0.0) -> Exception:
    if circuit_breaker.record_failure(vendor):
        return Wait(max(circuit_breaker.params()["breaker_seconds"], retry_after), AWAY)
    return Retryable(code, retry_after=retry_after)


@contextmanager
def guarded_call(
    vendor: Vendor, operation: str, *, tokens: int = 0, meaning: StatusInterpreter | None = None
) -> Iterator[None]:
    """Admit a call, and report how it went: ``admit``, then ``succeeded`` or ``failed``. Its time is counted."""
    acquire(vendor, tokens=tokens)
    try:
        with call_metrics.record_call(vendor, operation):
            yield
    except Exception as error:
        outcome = record_failure(vendor, error, meaning)
        if outcome is error:
            raise
        raise outcome from error
    record_success(vendor)


def delete_vendor_state(vendor: Vendor) -> None:
    """Forget the budget and the breakers of a key that nobody will call with any more."""
    RateLimit.objects.filter(key__in=rate_limit.row_keys(vendor)).delete()
    Breaker.objects.filter(key=vendor.circuit).delete()


def is_circuit_open(vendor: Vendor) -> bool:
    """Tell whether the vendor's breaker keeps calls back at present; False when the next call would be the probe."""
    with connection.cursor() as cursor:
        cursor.execute(IS_OPEN, {"key": vendor.circuit, **circuit_breaker.params()})
        row = cursor.fetchone()
    return bool(row and row[0])
