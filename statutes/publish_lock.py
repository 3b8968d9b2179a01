"""One at a time per law: its artifacts lie in one place, whichever version they are of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from django.db.utils import DatabaseError, InterfaceError

LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
UNLOCK = "SELECT pg_advisory_unlock(hashtextextended(%s, 0))"
# As a key of 64 bits is shown: https://www.postgresql.org/docs/current/view-pg-locks.html
HELD = """
    SELECT EXISTS (
        SELECT FROM pg_locks, hashtextextended(%s, 0) AS key
        WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND granted AND objsubid = 1
          AND classid::bigint = (key >> 32) & 4294967295 AND objid::bigint = key & 4294967295)"""


@contextmanager
def alone(law_id: str) -> Iterator[bool]:
    """Hold the right to publish a law; yields False if another worker does.

    A session's lock, not a transaction's: none is open while objects are on their way, and a worker that has lost its
    claim and still uploads keeps others out. A process that dies loses it.
    """
    held = _ask(LOCK, law_id)
    try:
        yield held
    finally:
        if held:
            try:
                _ask(UNLOCK, law_id)
            except (DatabaseError, InterfaceError):
                connection.close()  # whatever it was, the session ends, and the lock with it


def is_ours(law_id: str) -> bool:
    """Tell whether this very session has the right: it ends with the session, and Django opens another unasked."""
    return _ask(HELD, law_id)


def _ask(sql: str, law_id: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(sql, [f"law:{law_id}"])
        return bool(cursor.fetchone()[0])
