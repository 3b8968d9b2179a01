"""Events of jobs, written in the transaction of what they record. They hold ids and codes only, no text or paths."""

from collections.abc import Mapping
from typing import Any

import structlog

from jobs import log_context
from jobs.models import Event, UploadJob

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.events")

# MVP context §7: the codes that every deployment emits.
EVENT_CODES = (
    "UPLOAD_DEDUP_HIT",
    "UPLOAD_ACCEPTED",
    "PARSE_REQUESTED",
    "PARSE_STORED",
    "PARSE_HASH_MISMATCH",
    "CHUNK_BUFFERED",
    "CHUNK_COMMITTED",
    "EMBED_BUFFERED",
    "EMBED_COMMITTED",
    "EMBED_INDEX_TIMEOUT",
    "RETRY_SCHEDULED",
    "DLQ_MOVED",
)


def log_event(
    job: UploadJob,
    code: str,
    type: str = Event.Type.STAGE_DONE,
    severity: str = Event.Severity.INFO,
    payload: Mapping[str, Any] | None = None,
) -> None:
    """Write one event of a job, in the caller's transaction."""
    Event.objects.create(
        job_id=job.job_id,
        document_id=job.document_id,
        user_id=job.user_id,
        type=type,
        severity=severity,
        code=code,
        payload=dict(payload or {}),
        correlation_id=job.correlation_id,
    )
    log.info(
        code, **log_context.job_fields(job), **({"stage": stage} if (stage := (payload or {}).get("stage")) else {})
    )
