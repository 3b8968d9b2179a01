"""How long vendors take and how they answer: noted where a call is made, written down where a database is at hand."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from django.db import DatabaseError, InterfaceError, connection

from jobs import tracing
from jobs.errors import safe_error_name
from vendors import errors
from vendors.vendor import Vendor

log = logging.getLogger("accessa.vendors")

OK, BROKEN_OFF = "ok", "broken_off"
MOST = 1_000  # while no database takes them, the oldest are dropped

# The wait for the disk ends with the statement's own commit: a call that is not counted costs nobody anything.
KEEP = """
WITH kept AS (
    INSERT INTO vendor_calls (vendor, operation, outcome, seconds)
    SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::float8[])
)
SELECT set_config('synchronous_commit', 'off', true)
"""


class CallRecord(NamedTuple):
    vendor: str
    operation: str
    outcome: str
    seconds: float


_buffer: deque[CallRecord] = deque(maxlen=MOST)


@contextmanager
def record_call(vendor: Vendor, operation: str) -> Iterator[None]:
    """Note one call, in any thread: no database is touched. What is no vendor's fault is not noted."""
    began, outcome = time.monotonic(), BROKEN_OFF
    with tracing.span("vendor call", vendor=vendor.name, operation=operation) as note:
        try:
            yield
            outcome = OK
        except Exception as error:
            outcome = _outcome(error)
            raise
        finally:
            note(outcome=outcome)
            if outcome:
                _buffer.append(CallRecord(vendor.name, operation, outcome, time.monotonic() - began))


def _outcome(error: Exception) -> str:
    answer = errors.error_response(error)
    return str(answer.status) if answer else errors.failure_code(error) or ""


def flush() -> None:
    """Write down what was noted. Not inside a transaction, where a failure would be the caller's; never raises."""
    if not _buffer or connection.in_atomic_block:
        return
    rows = [_buffer.popleft() for _ in range(len(_buffer))]
    try:
        with connection.cursor() as cursor:
            cursor.execute(KEEP, [list(column) for column in zip(*rows, strict=True)])
    except (DatabaseError, InterfaceError) as error:
        log.info("%d calls of vendors were not counted: %s", len(rows), safe_error_name(error))
