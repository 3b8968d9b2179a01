"""What time alone changes of laws: a version whose job died has failed, also where no message tells of its end."""

from __future__ import annotations

from django.db import connection

# A minute late: a message that comes again is written down just before its dead job is tried again.
FAILED = """
WITH dead AS (
    SELECT v.document_id, coalesce(j.last_error ->> 'code', 'internal') AS code
    FROM law_versions v JOIN upload_jobs j ON j.job_id = v.job_id
    WHERE v.status IN ('processing', 'normalized') AND v.updated_at < clock_timestamp() - interval '1 minute'
      AND j.state = 'deadletter' AND j.finished_at < clock_timestamp() - interval '1 minute'
    ORDER BY v.document_id LIMIT 1000
), failed AS (
    UPDATE law_versions v SET status = 'failed', error_code = dead.code, updated_at = clock_timestamp()
    FROM dead WHERE v.document_id = dead.document_id AND v.status IN ('processing', 'normalized')
    RETURNING v.law_id, v.version
)
UPDATE laws l SET status = 'failed', updated_at = clock_timestamp() FROM failed
WHERE l.law_id = failed.law_id AND l.version = failed.version AND l.document_id IS NULL"""


def note_failures() -> None:
    """Write down that versions have failed whose jobs were cancelled, or were begun by staff and died."""
    with connection.cursor() as cursor:
        cursor.execute(FAILED)
