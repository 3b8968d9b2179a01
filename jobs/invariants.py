"""Invariants of stages: what must be true in the database for a job to stand at a stage, and a cache for checks."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from uuid import UUID

from django.db import connection

from jobs.pipeline import Invariant


def sql_invariant(sql: str) -> Invariant:
    """Return the invariant of a query that selects ``(job_id, reason)`` of the jobs in ``%(jobs)s`` that violate it."""

    def check(job_ids: Sequence[UUID]) -> dict[UUID, str]:
        with connection.cursor() as cursor:
            cursor.execute(sql, {"jobs": list(job_ids)})
            return dict(cursor.fetchall())

    return check


def all_invariants(*invariants: Invariant) -> Invariant:
    """Return the invariant that holds when all of ``invariants`` do; the first that does not gives the reason."""

    def check(job_ids: Sequence[UUID]) -> dict[UUID, str]:
        violations: dict[UUID, str] = {}
        for invariant in invariants:
            left = [job_id for job_id in job_ids if job_id not in violations]
            violations |= invariant(left) if left else {}
        return violations

    return check


_cache: ContextVar[dict[Hashable, str | OSError | None] | None] = ContextVar("invariant_cache", default=None)


@contextmanager
def shared_checks() -> Iterator[None]:
    """Check several stages as of one moment: within the block each stored object is read once."""
    token = _cache.set({})
    try:
        yield
    finally:
        _cache.reset(token)


def cached_check(key: Hashable, check: Callable[[], str | None]) -> str | None:
    """Return ``check()``, cached within ``shared_checks``. An ``OSError`` of the store is cached and raised again."""
    cache = _cache.get()
    if cache is None:
        return check()
    if key not in cache:
        try:
            cache[key] = check()
        except OSError as error:
            cache[key] = error
    reason = cache[key]
    if isinstance(reason, OSError):
        raise reason
    return reason
