"""PostgreSQL advisory locks by a text key, of a transaction or of a session."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError

LOCK_TRANSACTION = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
TRY_LOCK_TRANSACTION = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"
# pg_locks shows a key of 64 bits as two halves: https://www.postgresql.org/docs/current/view-pg-locks.html
HOLDS_SESSION_LOCK = """
    SELECT EXISTS (
        SELECT FROM pg_locks, hashtextextended(%s, 0) AS key
        WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND granted AND objsubid = 1
          AND classid::bigint = (key >> 32) & 4294967295 AND objid::bigint = key & 4294967295)"""


def lock_transaction(key: str) -> None:
    """Wait for the lock and hold it until the current transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(LOCK_TRANSACTION, [key])


def try_lock_transaction(key: str) -> bool:
    """Take the lock until the current transaction ends; return False if another session holds it."""
    return _fetch(TRY_LOCK_TRANSACTION, key)


def try_lock_session(key: str) -> bool:
    """Take the lock until ``unlock_session`` or the end of the session; return False if another session holds it."""
    return _fetch("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", key)


def unlock_session(key: str) -> None:
    try:
        _fetch("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", key)
    except (DatabaseError, InterfaceError):
        connection.close()  # the lock ends with the session


@contextmanager
def session_lock(key: str) -> Iterator[bool]:
    """Hold the lock for the block, outside of any transaction; yield False if another session holds it.

    A process that dies loses the lock. So does one whose connection breaks: see ``holds_session_lock``. Behind a
    transaction pooler, which has no sessions, a transaction on a connection of its own holds the lock.
    """
    if settings.DATABASE_TRANSACTION_POOLING:
        own = connections.create_connection(DEFAULT_DB_ALIAS)
        try:
            own.set_autocommit(False)
            yield _fetch(TRY_LOCK_TRANSACTION, key, own)
        finally:
            own.close()
        return
    is_locked = try_lock_session(key)
    try:
        yield is_locked
    finally:
        if is_locked:
            unlock_session(key)


def holds_session_lock(key: str) -> bool:
    """Tell whether this session holds the lock. Django opens a new session unasked when the connection breaks."""
    return _fetch(HOLDS_SESSION_LOCK, key)


def _fetch(sql: str, key: str, database: BaseDatabaseWrapper = connection) -> bool:
    with database.cursor() as cursor:
        cursor.execute(sql, [key])
        return bool(cursor.fetchone()[0])
