"""Vendor calls: rate limit and circuit breaker first, then metrics, and one mapping from errors to outcomes."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import DatabaseError, InterfaceError, connection, transaction

from accounts.errors import ErrorCode, find_error_code
from jobs import pauses, telemetry
from jobs.outcomes import Permanent, Retryable, Wait
from jobs.safe_errors import safe_error_name
from vendors import call_failures, circuit_breaker, error_codes, rate_limit, rate_limit_headers
from vendors.models import Breaker, RateLimit
from vendors.vendor_account import Vendor

log = logging.getLogger("accessa.vendors")

SLEEP_SECONDS = 2.0  # a shorter wait is slept through; for a longer one the job is put back
QUOTA_SECONDS, KEY_SECONDS = 600.0, 60.0
LEAST_SECONDS = 0.5  # a 429 with "retry at once" is not retried without end

# The clock is read after the rows are locked: a call that waited for them has not come earlier.
LOCK = f"""
WITH locked AS MATERIALIZED (
    SELECT key, theoretical_arrival, paused_until, pause_reason FROM vendor_rate_limits
    WHERE key = ANY(%(keys)s) ORDER BY key FOR UPDATE
)
SELECT l.key, l.theoretical_arrival, l.pause_reason, extract(epoch FROM l.paused_until - clock_timestamp())::float,
       clock_timestamp(), ({circuit_breaker.WAIT})::float,
       EXISTS (SELECT FROM pauses WHERE kind = 'vendor' AND subject = %(vendor)s)
FROM locked l LEFT JOIN vendor_breakers b ON b.key = %(key)s ORDER BY l.key
"""
IS_OPEN = f"SELECT ({circuit_breaker.WAIT}) > 0 FROM vendor_breakers b WHERE key = %(key)s"

# The outcome of a 4xx that means something else with one vendor than with all others; None where it does not.
StatusInterpreter = Callable[[call_failures.ErrorResponse], Exception | None]


class VendorRefused(Permanent):
    """The vendor is well and will never do this. ``vendor_code`` is its own name for the reason, if it gave one."""

    def __init__(self, status: int, vendor_code: str | None) -> None:
        super().__init__(error_codes.VENDOR_REFUSED, f"The vendor refused the request with status {status}.")
        self.status = status
        self.vendor_code = vendor_code


def acquire(vendor: Vendor, *, tokens: int = 0) -> None:
    """Let one call of ``tokens`` pass, or raise ``Wait``: breaker open, vendor paused, budget used up.

    Call it outside of transactions. Inside one it never sleeps, and it locks the vendor's budget, so all other callers
    of the key wait until the transaction ends; a rollback gives back what was spent.
    """
    until = time.monotonic() + SLEEP_SECONDS
    while True:
        try:
            with transaction.atomic():
                _acquire(vendor, tokens)
            return
        except Wait as wait:
            seconds = wait.seconds
            may_sleep = wait.reason != error_codes.VENDOR_AWAY and time.monotonic() + seconds <= until
            if connection.in_atomic_block or not may_sleep:
                raise
        time.sleep(seconds)


def _acquire(vendor: Vendor, tokens: int) -> None:
    keys = rate_limit.row_keys(vendor)
    with connection.cursor() as cursor:
        params: dict[str, Any] = {"keys": keys, "key": vendor.circuit, "vendor": vendor.name}
        params |= circuit_breaker.params()
        cursor.execute(LOCK, params)
        if cursor.rowcount < len(keys):  # the first call ever
            cursor.execute(rate_limit.CREATE, [keys])
            cursor.execute(LOCK, params)
        rows = {key: columns for key, *columns in cursor.fetchall()}
    _, pause_reason, pause_seconds, now, breaker_seconds, is_paused_by_staff = rows[vendor.key]
    if is_paused_by_staff:
        raise pauses.wait()
    if breaker_seconds is not None and breaker_seconds > 0:
        raise Wait(breaker_seconds, error_codes.VENDOR_AWAY)
    if pause_seconds is not None and pause_seconds > 0:
        raise Wait(pause_seconds, find_error_code(pause_reason) or error_codes.VENDOR_RATE_LIMITED)
    rate_limit.spend(vendor, {key: columns[0] for key, columns in rows.items()}, tokens=tokens, now=now)
    if breaker_seconds is None:
        circuit_breaker.discard_probe(vendor)
    elif not circuit_breaker.start_probe(vendor):
        raise Wait(circuit_breaker.params()["breaker_seconds"], error_codes.VENDOR_AWAY)


def record_success(vendor: Vendor, headers: Mapping[str, str] | None = None) -> None:
    """Report a response to the breaker, and its rate-limit headers to the rate limit."""
    circuit_breaker.record_success(vendor)
    if headers and (seconds := rate_limit_headers.quota_reset(headers)):
        rate_limit.pause(vendor, seconds, error_codes.VENDOR_RATE_LIMITED)
    flush_call_records()


def record_failure(vendor: Vendor, error: Exception, interpret: StatusInterpreter | None = None) -> Exception:
    """Report a failed call to the breaker and the rate limit; return what to raise: Wait, Retryable or Permanent.

    What is no vendor's failure (an outcome already named, a lost claim, the database, a bug) comes back unchanged.
    """
    if response := call_failures.error_response(error):
        outcome = _response_outcome(vendor, response, interpret)
    elif code := call_failures.failure_code(error):
        outcome = _failure(vendor, code)
    else:
        circuit_breaker.release_probe(vendor)
        return error
    flush_call_records()
    outcome.__cause__ = error
    return outcome


def _response_outcome(
    vendor: Vendor, response: call_failures.ErrorResponse, interpret: StatusInterpreter | None
) -> Exception:
    status, retry_after = response.status, rate_limit_headers.retry_after(response.headers)
    if status >= 500 or status in (408, 409):
        return _failure(vendor, error_codes.VENDOR_UNAVAILABLE, retry_after or 0.0)
    circuit_breaker.record_success(vendor)
    outcome = interpret(response) if interpret else None
    if outcome is not None:
        return _pause(vendor, outcome.seconds, outcome.reason) if isinstance(outcome, Wait) else outcome
    if status == 402 or (status == 429 and response.vendor_code == "insufficient_quota"):
        log.error("Vendor %s: the account's quota is exhausted.", vendor.name)
        return _pause(vendor, QUOTA_SECONDS, error_codes.VENDOR_QUOTA_EXHAUSTED)
    if status in (401, 403):
        log.error("Vendor %s refuses its key with status %d.", vendor.name, status)
        return _pause(vendor, KEY_SECONDS, error_codes.VENDOR_REFUSES_KEY)
    if status == 429:
        return Wait(rate_limit.back_off(vendor, limited_seconds(response)), error_codes.VENDOR_RATE_LIMITED)
    return VendorRefused(status, response.vendor_code)


def limited_seconds(response: call_failures.ErrorResponse) -> float:
    """Return how long a 429 asks to wait."""
    retry_after = rate_limit_headers.retry_after(response.headers)
    return rate_limit.LIMITED_SECONDS if retry_after is None else max(retry_after, LEAST_SECONDS)


def _pause(vendor: Vendor, seconds: float, reason: ErrorCode) -> Wait:
    rate_limit.pause(vendor, seconds, reason)
    return Wait(seconds, reason)


def _failure(vendor: Vendor, code: ErrorCode, retry_after: float = 0.0) -> Exception:
    if circuit_breaker.record_failure(vendor):
        return Wait(max(circuit_breaker.params()["breaker_seconds"], retry_after), error_codes.VENDOR_AWAY)
    return Retryable(code, retry_after=retry_after)


@contextmanager
def guarded_call(
    vendor: Vendor, operation: str, *, tokens: int = 0, interpret: StatusInterpreter | None = None
) -> Iterator[None]:
    """Acquire, time and report one call: ``acquire``, then ``record_success`` or ``record_failure``."""
    acquire(vendor, tokens=tokens)
    try:
        with record_call(vendor, operation):
            yield
    except Exception as error:
        outcome = record_failure(vendor, error, interpret)
        if outcome is error:
            raise
        raise outcome from error
    record_success(vendor)


def delete_vendor_state(vendor: Vendor) -> None:
    RateLimit.objects.filter(key__in=rate_limit.row_keys(vendor)).delete()
    Breaker.objects.filter(key=vendor.circuit).delete()


def is_circuit_open(vendor: Vendor) -> bool:
    """Return whether the breaker holds calls back at present; False when the next call would be the probe."""
    with connection.cursor() as cursor:
        cursor.execute(IS_OPEN, {"key": vendor.circuit, **circuit_breaker.params()})
        row = cursor.fetchone()
    return bool(row and row[0])


OK, INTERRUPTED = "ok", "broken_off"
BUFFER_SIZE = 1_000  # while the database is away, the oldest are dropped

# The wait for the disk ends with the statement's own commit: losing a call's record costs nobody anything.
INSERT = """
WITH inserted AS (
    INSERT INTO vendor_calls (vendor, operation, outcome, seconds)
    SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::float8[])
)
SELECT set_config('synchronous_commit', 'off', true)
"""


# Rows of ``vendor_calls``: vendor, operation, outcome, seconds.
_buffer: deque[tuple[str, str, str, float]] = deque(maxlen=BUFFER_SIZE)


@contextmanager
def record_call(vendor: Vendor, operation: str) -> Iterator[None]:
    """Record one call, in any thread: no database is touched. An error that is not the vendor's is not recorded."""
    started, outcome = time.monotonic(), INTERRUPTED
    with telemetry.span("vendor call", vendor=vendor.name, operation=operation) as note:
        try:
            yield
            outcome = OK
        except Exception as error:
            response = call_failures.error_response(error)
            outcome = str(response.status) if response else call_failures.failure_code(error) or ""
            raise
        finally:
            note(outcome=outcome)
            if outcome:
                _buffer.append((vendor.name, operation, outcome, time.monotonic() - started))


def flush_call_records() -> None:
    """Insert the buffered records. Not inside a transaction, where a failure would be the caller's; never raises."""
    if not _buffer or connection.in_atomic_block:
        return
    rows = [_buffer.popleft() for _ in range(len(_buffer))]
    try:
        with connection.cursor() as cursor:
            cursor.execute(INSERT, [list(column) for column in zip(*rows, strict=True)])
    except (DatabaseError, InterfaceError) as error:
        log.info("%d calls of vendors were not counted: %s", len(rows), safe_error_name(error))
