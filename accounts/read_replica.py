"""Read replica (DATABASE_REPLICA_URL): a streaming standby, read once it has all that the primary has committed."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import structlog
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connection, connections

T = TypeVar("T")
log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

REPLICA = "replica"
WAIT_SECONDS = 0.1  # for commits that the replica has not replayed yet
POLL_SECONDS = 0.002
PAUSE_SECONDS = 5.0  # without the replica once it was away or late, of each process

# The cluster and its timeline belong to the position: a standby of another cluster, or one that did not follow a
# promotion, may be further in a log of its own. The part of a flushed commit that counts is what others may have seen.
PRIMARY = """
    SELECT system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_flush_lsn()), 8))::bit(32)::int,
           pg_current_wal_flush_lsn()::text FROM pg_control_system()"""
# The control file learns of a promotion with the next restartpoint or flush: until then the primary is read.
STANDBY = """
    SELECT system_identifier, greatest(timeline_id, min_recovery_end_timeline),
           CASE WHEN pg_is_in_recovery() THEN pg_wal_lsn_diff(%s, pg_last_wal_replay_lsn())::bigint END
    FROM pg_control_system(), pg_control_checkpoint(), pg_control_recovery()"""

_is_selected: ContextVar[bool] = ContextVar("replica_is_selected", default=False)
_paused_until = 0.0


def is_configured() -> bool:
    return REPLICA in connections.settings


def read(call: Callable[[], T]) -> T:
    """Return the result of ``call``, whose snapshots are the replica's once that has what was committed before.

    They are the primary's while the replica is away or late, and in a transaction of the caller's. ``call`` runs once
    more, on the primary, where the replica fails meanwhile.
    """
    if _is_current():
        token = _is_selected.set(True)
        try:
            return call()
        except (OperationalError, InterfaceError) as error:
            _pause(type(error).__name__)
        finally:
            _is_selected.reset(token)
    return call()


@contextmanager
def selected_connection() -> Iterator[None]:
    """Let the default connection of this thread be the replica's, for reads of a call by ``read``."""
    if not _is_selected.get():
        yield
        return
    primary = connections[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = connections[REPLICA]
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS] = primary


def lag_bytes() -> int | None:
    """Return how much of the primary's log the replica has not replayed; None if it is away or no standby of it."""
    cluster = _fetch(DEFAULT_DB_ALIAS, PRIMARY)
    try:
        *replicated, lag = _fetch(REPLICA, STANDBY, cluster[-1])
    except (OperationalError, InterfaceError):
        return None
    return max(0, lag) if replicated == cluster[:-1] and lag is not None else None


def _is_current() -> bool:
    if not is_configured() or time.monotonic() < _paused_until or not connection.get_autocommit():
        return False
    *cluster, position = _fetch(DEFAULT_DB_ALIAS, PRIMARY)
    deadline = time.monotonic() + WAIT_SECONDS
    try:
        while True:
            *replicated, lag = _fetch(REPLICA, STANDBY, position)
            if replicated != cluster or lag is None:
                _pause("not a standby of this primary")
                return False
            if lag <= 0:
                return True
            if time.monotonic() > deadline:
                _pause("late")
                return False
            time.sleep(POLL_SECONDS)
    except (OperationalError, InterfaceError) as error:
        _pause(type(error).__name__)
        return False


def _pause(reason: str) -> None:
    global _paused_until
    _paused_until = time.monotonic() + PAUSE_SECONDS
    log.warning("The replica is not read for a while.", reason=reason, seconds=PAUSE_SECONDS)


def _fetch(alias: str, sql: str, *params: Any) -> list[Any]:
    with connections[alias].cursor() as cursor:
        cursor.execute(sql, params or None)
        return list(cursor.fetchone())
