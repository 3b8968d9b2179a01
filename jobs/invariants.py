"""Proofs: what must be true in the database for a job to stand at a stage. One definition, three uses."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from uuid import UUID

from django.db import connection

from jobs.pipeline import Invariant


def sql_invariant(sql: str) -> Invariant:
    """Return the proof of a query that selects ``(job_id, reason)`` of the jobs in ``%(jobs)s`` that break it."""

    def prove(job_ids: Sequence[UUID]) -> dict[UUID, str]:
        with connection.cursor() as cursor:
            cursor.execute(sql, {"jobs": list(job_ids)})
            return dict(cursor.fetchall())

    return prove


def all_invariants(*proofs: Invariant) -> Invariant:
    """Return the proof that holds when all of ``proofs`` do; the first that does not gives the reason."""

    def prove(job_ids: Sequence[UUID]) -> dict[UUID, str]:
        broken: dict[UUID, str] = {}
        for proof in proofs:
            left = [job_id for job_id in job_ids if job_id not in broken]
            broken |= proof(left) if left else {}
        return broken

    return prove


_seen: ContextVar[dict[Hashable, str | OSError | None] | None] = ContextVar("seen", default=None)


@contextmanager
def shared_checks() -> Iterator[None]:
    """Prove several stages within the block as of one moment: each object of the store is looked at once."""
    token = _seen.set({})
    try:
        yield
    finally:
        _seen.reset(token)


def cached_check(key: Hashable, look: Callable[[], str | None]) -> str | None:
    """Return ``look()``; within one pass, what it said the first time. A store that is away stays away for the pass."""
    seen = _seen.get()
    if seen is None:
        return look()
    if key not in seen:
        try:
            seen[key] = look()
        except OSError as error:
            seen[key] = error
    found = seen[key]
    if isinstance(found, OSError):
        raise found
    return found
