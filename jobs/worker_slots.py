"""Worker slots: so many workers of a cluster serve a side queue at once, the others stay free for the jobs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection

from jobs.cluster import shared_state

# A slot is a session's advisory lock: released with the connection, however its process ends. Taken for due work only.
_TAKE_SLOT = """
    SELECT slot FROM generate_series(0, %(slots)s - 1) slot
    WHERE CASE WHEN EXISTS ({due}) THEN pg_try_advisory_lock(hashtext(%(name)s), slot) END
    LIMIT 1"""
_RELEASE_SLOT = "SELECT pg_advisory_unlock(hashtext(%(name)s), %(slot)s)"
_TAKEN_SLOTS = """
    SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 2 AND classid = hashtext(%(name)s)::oid AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
_CLAIMABLE = f"""
    WITH due AS (SELECT count(*) AS messages FROM ({{due}} LIMIT %(most)s) visible)
    SELECT CASE WHEN messages = 0 THEN 0 ELSE least(messages, %(slots)s - ({_TAKEN_SLOTS})) END FROM due"""


class WorkerSlots:
    """The slots of one side queue. ``due`` is the SQL of a query that has a row for each message that is due."""

    def __init__(self, name: str, *, due: str, count: Callable[[], int]) -> None:
        self._name, self._count = name, count
        self._take, self._claimable = _TAKE_SLOT.format(due=due), _CLAIMABLE.format(due=due)

    def _params(self) -> dict[str, Any]:
        return {"name": f"{self._name}:{shared_state.cluster_name()}", "slots": self._count()}

    @contextmanager
    def hold(self) -> Iterator[bool]:
        """Hold a slot for the block; yield whether there was one, and a message to use it for."""
        params = self._params()
        with connection.cursor() as cursor:
            cursor.execute(self._take, params)
            row = cursor.fetchone()
        if row is None:
            yield False
            return
        try:
            yield True
        finally:
            # Where the connection was lost meanwhile, the slot went with it.
            with connection.cursor() as cursor:
                cursor.execute(_RELEASE_SLOT, params | {"slot": row[0]})

    def count_claimable(self, cursor: Any, *, most: int) -> int:
        """Return how many workers of this cluster would find both a message and a slot."""
        cursor.execute(self._claimable, self._params() | {"most": most})
        return max(0, int(cursor.fetchone()[0]))
