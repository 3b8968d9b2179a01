"""Groups of dead letters, by stage and error code: read along the index ix_jobs_dead, however many there are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet
from django.db.models.fields.json import KT

from accounts.errors import ErrorCode
from console.remedies import TriedRemedy, find_failure, tried_remedies
from jobs.choices import CANCELLED_CODES, Stage, State
from jobs.models import UploadJob

MAX_COUNT = 1_000
MAX_CODES = 30  # of one stage
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
               json_agg(json_build_object('pk', few.job_id, 'document_id', few.document_id, 'user_id', few.user_id,
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
class Group:
    """Dead letters of one stage and code. ``counted`` stops at ``MAX_COUNT``; ``samples`` are its newest."""

    stage: str
    code: str
    counted: int
    newest: datetime
    oldest: datetime
    samples: Sequence[Mapping[str, Any]]
    tried: Sequence[TriedRemedy] = ()

    @property
    def count(self) -> str:
        return f"{MAX_COUNT:,}+" if self.counted > MAX_COUNT else f"{self.counted:,}"

    @property
    def is_cancelled(self) -> bool:
        return self.code in CANCELLED_CODES

    @property
    def remedy(self) -> ErrorCode:
        """The newest job's code: its remedy may differ between uploads and statutes."""
        return find_failure(self.code, self.samples[0]["pipeline"] if self.samples else "")

    @property
    def detail(self) -> str:
        return (self.samples[0]["detail"] or "") if self.samples else ""

    @property
    def attempts(self) -> str:
        attempts = sorted({job["attempts"] for job in self.samples})
        return " to ".join(dict.fromkeys((f"{attempts[0]}", f"{attempts[-1]}"))) if attempts else ""


def groups() -> list[Group]:
    limits: dict[str, Any] = {"most_codes": MAX_CODES, "most_counted": MAX_COUNT, "samples": SAMPLES}
    with connection.cursor() as cursor:
        cursor.execute(GROUPS, limits | {"stages": Stage.values})
        dead_groups = [_group(*row) for row in cursor.fetchall()]
    tried = tried_remedies(group.code for group in dead_groups)
    dead_groups = [replace(group, tried=tried.get(group.code, ())) for group in dead_groups]
    return sorted(dead_groups, key=lambda group: group.newest, reverse=True)


def _group(*columns: Any) -> Group:
    group = Group(*columns)
    ids = ("pk", "user_id", "document_id")
    return replace(group, samples=[{**job, **{name: UUID(job[name]) for name in ids}} for job in group.samples or ()])


def group_jobs(stage: str, code: str, *, before: datetime | None = None) -> QuerySet[UploadJob]:
    dead = UploadJob.objects.defer("payload", "progress", "traceback").alias(error=KT("last_error__code"))
    jobs = dead.filter(state=State.DEADLETTER, stage=stage, error=code).order_by("-finished_at")
    return jobs if before is None else jobs.filter(finished_at__lte=before)


def count_jobs(stage: str, code: str, *, before: datetime | None = None) -> int:
    """Return the size of a group, counted up to one more than ``MAX_COUNT``."""
    return int(group_jobs(stage, code, before=before).order_by()[: MAX_COUNT + 1].count())


def retry_batch(stage: str, code: str, *, before: datetime | None, size: int) -> list[tuple[UUID, Any]]:
    """Return the next ids of a group, each with its time of death, at which the following batch begins.

    The newest first: a job that is retried and dies again is newer, and does not occur twice.
    """
    return list(group_jobs(stage, code, before=before).values_list("pk", "finished_at")[:size])
