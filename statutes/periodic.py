"""What time alone changes of laws: a version whose job died has failed, also where no message tells of its end."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection
from django.db.models.functions import Now

from jobs.models import UploadJob
from jobs.states import CANCELLED_CODES
from statutes import settlement
from statutes.models import LawVersion
from statutes.s3 import artifacts

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
ARCHIVED_AT_ONCE = 20
# A minute late: a message that comes again is written down just before its dead job is tried again.
_DEAD = """
    FROM law_versions v JOIN upload_jobs j ON j.job_id = v.job_id
    WHERE v.status IN ('processing', 'normalized') AND v.updated_at < clock_timestamp() - interval '1 minute'
      AND j.state = 'deadletter' AND j.finished_at < clock_timestamp() - interval '1 minute'"""
_IS_FATAL = """(coalesce(j.last_error -> 'permanent' = 'true', false)
                AND coalesce(j.last_error ->> 'code', '') <> ALL(%(let_go)s))"""
FATAL = f"SELECT v.document_id {_DEAD} AND {_IS_FATAL} ORDER BY v.updated_at LIMIT %(most)s"
FAILED = f"""
WITH dead AS (
    SELECT v.document_id, coalesce(j.last_error ->> 'code', 'internal') AS code {_DEAD}
      AND (v.document_id = ANY(%(archived)s) OR NOT {_IS_FATAL})
    ORDER BY v.document_id LIMIT 1000
), failed AS (
    UPDATE law_versions v SET status = 'failed', error_code = dead.code, updated_at = clock_timestamp()
    FROM dead WHERE v.document_id = dead.document_id AND v.status IN ('processing', 'normalized')
    RETURNING v.law_id, v.version
)
UPDATE laws l SET status = 'failed', updated_at = clock_timestamp() FROM failed
WHERE l.law_id = failed.law_id AND l.version = failed.version AND l.document_id IS NULL"""


def note_failures() -> None:
    """Write down that versions have failed whose jobs were cancelled, or whose end no message was held for.

    What failed for good is archived first, as where a message is settled: a bucket that is away is tried again.
    """
    params: dict[str, Any] = {"let_go": list(CANCELLED_CODES), "most": ARCHIVED_AT_ONCE}
    with connection.cursor() as cursor:
        cursor.execute(FATAL, params)
        fatal = [document_id for (document_id,) in cursor.fetchall()]
    archived = _archived(fatal) if settings.STATUTES_BUCKET else fatal
    with connection.cursor() as cursor:
        cursor.execute(FAILED, params | {"archived": archived})


def _archived(document_ids: list[UUID]) -> list[UUID]:
    """Archive what has failed; return what was, up to the first that the bucket does not take."""
    done = []
    for document_id in document_ids:
        mine = LawVersion.objects.filter(pk=document_id)
        version = mine.defer("canonical").first()
        job = UploadJob.objects.filter(pk__in=mine.values("job_id")).first()
        if version is None or job is None or not settlement.is_fatal(job):  # taken out, or tried again meanwhile
            continue
        try:
            artifacts.archive(version, settlement.told(job))
        except OSError:
            log.warning("A failed law could not be archived; it will be tried again.", code="STORAGE_UNAVAILABLE")
            mine.update(updated_at=Now())  # behind the others, should it be this one that the bucket never takes
            break
        done.append(document_id)
    return done
