"""Vendor call metrics: durations and outcomes, buffered in memory and inserted where a database is at hand."""

import logging
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from django.db import DatabaseError, InterfaceError, connection

from jobs import telemetry
from jobs.safe_errors import safe_error_name
from vendors import call_failures
from vendors.vendor import Vendor

log = logging.getLogger("accessa.vendors")

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


class CallRecord(NamedTuple):
    vendor: str
    operation: str
    outcome: str
    seconds: float


_buffer: deque[CallRecord] = deque(maxlen=BUFFER_SIZE)


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
                _buffer.append(CallRecord(vendor.name, operation, outcome, time.monotonic() - started))


def flush() -> None:
    """Insert the buffered records. Not inside a transaction, where a failure would be the caller's; never raises."""
    if not _buffer or connection.in_atomic_block:
        return
    rows = [_buffer.popleft() for _ in range(len(_buffer))]
    try:
        with connection.cursor() as cursor:
            cursor.execute(INSERT, [list(column) for column in zip(*rows, strict=True)])
    except (DatabaseError, InterfaceError) as error:
        log.info("%d calls of vendors were not counted: %s", len(rows), safe_error_name(error))
