"""Timings of jobs from their rows and events: ended or not, seconds in all and by stage, pages."""

from typing import Any

from django.db import connection

from jobs.models import UploadJob

ENDED = ("done", "deadletter")

# How long each stage took: an event tells of the stage that it leaves, the one before it of its beginning.
STAGE_SECONDS = """
    SELECT stage, sum(seconds)::float8 FROM (
        SELECT payload ->> 'from' AS stage,
               extract(epoch FROM ts - lag(ts) OVER (PARTITION BY job_id ORDER BY ts)) AS seconds
        FROM events) e
    WHERE stage IS NOT NULL GROUP BY stage ORDER BY 2 DESC"""


def jobs_have_ended() -> bool:
    return not UploadJob.objects.exclude(state__in=ENDED).exists()


def elapsed_seconds() -> float:
    """From the first claim to the last job's end, by the database's clock."""
    return float(_select_value("SELECT extract(epoch FROM max(finished_at) - min(started_at)) FROM upload_jobs"))


def count_pages() -> int:
    return int(_select_value("SELECT coalesce(sum(pages), 0) FROM documents"))


def stage_seconds() -> dict[str, float]:
    with connection.cursor() as cursor:
        cursor.execute(STAGE_SECONDS)
        return dict(cursor.fetchall())


def _select_value(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]
