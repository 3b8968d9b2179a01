"""The dead letters in groups, by stage and code: read along ix_jobs_dead, so that their number does not matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models.fields.json import KT

from accounts.errors import ErrorCode
from console.runbook import find_failure
from jobs.models import UploadJob
from jobs.states import CANCELLED_CODES, Stage, State

MOST_COUNTED = 1_000
MOST_CODES = 30  # of one stage
SAMPLES = 3

# The loose scan that PostgreSQL does not do by itself: from code to code within each stage, a probe a group. Each group
# is then counted up to a bound, and its ends are read from both ends of the index.
GROUPS = """
    WITH RECURSIVE codes AS (
        SELECT s.stage, (SELECT j.last_error ->> 'code' FROM upload_jobs j
                         WHERE j.state = 'deadletter' AND j.stage = s.stage AND j.last_error ->> 'code' IS NOT NULL
                         ORDER BY j.last_error ->> 'code' LIMIT 1) AS code, 1 AS hops
        FROM unnest(%(stages)s::text[]) s(stage)
        UNION ALL
        SELECT c.stage, (SELECT j.last_error ->> 'code' FROM upload_jobs j
                         WHERE j.state = 'deadletter' AND j.stage = c.stage AND j.last_error ->> 'code' > c.code
                         ORDER BY j.last_error ->> 'code' LIMIT 1), c.hops + 1
        FROM codes c WHERE c.code IS NOT NULL AND c.hops < %(most_codes)s
    )
    SELECT c.stage, c.code, n.counted, newest.finished_at, oldest.finished_at, newest.samples
    FROM codes c
    CROSS JOIN LATERAL (
        SELECT count(*) AS counted FROM (
            SELECT FROM upload_jobs j
            WHERE j.state = 'deadletter' AND j.stage = c.stage AND j.last_error ->> 'code' = c.code
            LIMIT %(most_counted)s + 1) few) n
    CROSS JOIN LATERAL (
        SELECT max(few.finished_at) AS finished_at,
               json_agg(json_build_object('job_id', few.job_id, 'document_id', few.document_id,
                                          'attempts', few.attempts, 'campaign_id', few.campaign_id,
                                          'pipeline', few.pipeline, 'detail', few.last_error ->> 'detail',
                                          'law', (SELECT v.law_id || ' ' || v.version FROM law_versions v
                                                  WHERE v.document_id = few.document_id))
                        ORDER BY few.finished_at DESC) AS samples
        FROM (SELECT * FROM upload_jobs j
              WHERE j.state = 'deadletter' AND j.stage = c.stage AND j.last_error ->> 'code' = c.code
              ORDER BY j.finished_at DESC LIMIT %(samples)s) few) newest
    CROSS JOIN LATERAL (
        SELECT j.finished_at FROM upload_jobs j
        WHERE j.state = 'deadletter' AND j.stage = c.stage AND j.last_error ->> 'code' = c.code
        ORDER BY j.finished_at LIMIT 1) oldest
    WHERE c.code IS NOT NULL"""


@dataclass(frozen=True, slots=True)
class Sample:
    """One of a group's newest jobs."""

    pk: UUID
    document_id: UUID
    attempts: int
    campaign_id: str | None
    pipeline: str
    detail: str | None
    law: str | None  # with its version, where the job is a law's


@dataclass(frozen=True, slots=True)
class Group:
    """Dead letters of one stage and code. ``counted`` stops at ``MOST_COUNTED``; ``samples`` are its newest."""

    stage: str
    code: str
    counted: int
    newest: datetime
    oldest: datetime
    samples: Sequence[Sample]

    @property
    def count(self) -> str:
        return f"{MOST_COUNTED:,}+" if self.counted > MOST_COUNTED else f"{self.counted:,}"

    @property
    def is_let_go(self) -> bool:
        return self.code in CANCELLED_CODES

    @property
    def remedy(self) -> ErrorCode:
        """What to do about the newest: a code may mean one thing of uploads and another of laws."""
        return find_failure(self.code, self.samples[0].pipeline if self.samples else "")

    @property
    def detail(self) -> str:
        return (self.samples[0].detail or "") if self.samples else ""

    @property
    def attempts(self) -> str:
        """How many tries the newest had taken when they died."""
        taken = sorted({job.attempts for job in self.samples})
        return f"{taken[0]}" if len(taken) == 1 else f"{taken[0]} to {taken[-1]}" if taken else ""


def groups() -> list[Group]:
    """Return the groups, those first in which something has failed last."""
    found = [
        Group(stage, code, counted, newest, oldest, [_sample(**each) for each in samples])
        for stage, code, counted, newest, oldest, samples in _rows()
    ]
    return sorted(found, key=lambda group: group.newest, reverse=True)


def _sample(job_id: str, document_id: str, **said: Any) -> Sample:
    return Sample(UUID(job_id), UUID(document_id), **said)


def _rows() -> list[Any]:
    params: dict[str, Any] = {
        "stages": Stage.values,
        "most_codes": MOST_CODES,
        "most_counted": MOST_COUNTED,
        "samples": SAMPLES,
    }
    with connection.cursor() as cursor:
        cursor.execute(GROUPS, params)
        return list(cursor.fetchall())


def jobs(stage: str, code: str) -> Any:
    """Return the dead letters of a group, the newest first."""
    dead = UploadJob.objects.defer("payload", "progress", "traceback").alias(error=KT("last_error__code"))
    return dead.filter(state=State.DEADLETTER, stage=stage, error=code).order_by("-finished_at")


def counted(stage: str, code: str, *, before: datetime | None = None) -> int:
    """Return how many a group has, counted up to one more than ``MOST_COUNTED``."""
    return int(_until(stage, code, before).order_by()[: MOST_COUNTED + 1].count())


def batch(stage: str, code: str, *, before: datetime | None, size: int) -> list[tuple[UUID, datetime]]:
    """Return the next ids of a group, each with when it died: with that the following batch begins.

    From the newest on: what is retried and dies again is newer, and is not met twice.
    """
    return list(_until(stage, code, before).values_list("pk", "finished_at")[:size])


def _until(stage: str, code: str, before: datetime | None) -> Any:
    found = jobs(stage, code)
    return found if before is None else found.filter(finished_at__lte=before)
