"""How many workers of a cluster may be at pages at once: the others stay free for the jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import connection

from integrations.sync.pgmq import TABLE
from jobs.cluster import shared_memory

_VISIBLE = f"SELECT 1 FROM {TABLE} WHERE vt <= clock_timestamp()"
# A slot is a lock of the session: freed with the connection, however its process ends. Tried when a page is due only.
_TAKE = f"""
    SELECT slot FROM generate_series(0, %(slots)s - 1) slot
    WHERE CASE WHEN EXISTS ({_VISIBLE}) THEN pg_try_advisory_lock(hashtext(%(name)s), slot) END
    LIMIT 1"""
_FREE = "SELECT pg_advisory_unlock(hashtext(%(name)s), %(slot)s)"
_TAKEN = """
    SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 2 AND classid = hashtext(%(name)s)::oid AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
_CLAIMABLE = f"""
    WITH due AS (SELECT count(*) AS pages FROM ({_VISIBLE} LIMIT %(most)s) visible)
    SELECT CASE WHEN pages = 0 THEN 0 ELSE least(pages, %(slots)s - ({_TAKEN})) END FROM due"""


def slot_count() -> int:
    wanted: int = settings.INGESTION_WORKERS or max(1, settings.WORKERS // 2)
    return min(wanted, int(settings.WORKERS))


def claimable_pages(cursor: Any, *, most_wanted: int) -> int:
    """Return how many workers of this cluster would find both a page and a slot."""
    cursor.execute(_CLAIMABLE, {**_named(), "slots": slot_count(), "most": most_wanted})
    return max(0, int(cursor.fetchone()[0]))


@contextmanager
def worker_slot() -> Iterator[bool]:
    """Hold a slot for the block; say whether there was one, and a page to use it for."""
    with connection.cursor() as cursor:
        cursor.execute(_TAKE, {**_named(), "slots": slot_count()})
        row = cursor.fetchone()
    if row is None:
        yield False
        return
    try:
        yield True
    finally:
        # Where the connection was lost meanwhile, the slot went with it.
        with connection.cursor() as cursor:
            cursor.execute(_FREE, {**_named(), "slot": row[0]})


def _named() -> dict[str, Any]:
    return {"name": f"ingestion:{shared_memory.cluster_name()}"}
