"""Proofs: what must be true in the database for a job to stand at a stage. One definition, three uses."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db import connection

from jobs.plan import Proof


def by_sql(sql: str) -> Proof:
    """Return the proof of a query that selects ``(job_id, reason)`` of the jobs in ``%(jobs)s`` that break it."""

    def prove(job_ids: Sequence[UUID]) -> dict[UUID, str]:
        with connection.cursor() as cursor:
            cursor.execute(sql, {"jobs": list(job_ids)})
            return dict(cursor.fetchall())

    return prove


def each(*proofs: Proof) -> Proof:
    """Return the proof that holds when all of ``proofs`` do; the first that does not gives the reason."""

    def prove(job_ids: Sequence[UUID]) -> dict[UUID, str]:
        broken: dict[UUID, str] = {}
        for proof in proofs:
            left = [job_id for job_id in job_ids if job_id not in broken]
            broken |= proof(left) if left else {}
        return broken

    return prove
