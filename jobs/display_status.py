"""Progress of a job in percent, and its display status: queued, waiting, starved, working, retrying, dead, done."""

import re
from uuid import UUID

from django.conf import settings
from django.db.models import Q
from django.db.models.expressions import RawSQL

from jobs import claim_queries
from jobs.choices import Stage, State
from jobs.models import UploadJob

# The counters in ``progress`` of stages that take time. Chunking has none: its chunks are written at once.
STAGE_COUNTERS = {Stage.PARSING: "pages", Stage.EMBEDDING: "embeds"}
DISPLAY_STATUSES = ("queued", "waiting", "starved", "working", "retrying", "dead", "done")


def stage_pct(job: UploadJob) -> float:
    """Return the percentage of the result that names the stage: pages parsed, vectors saved.

    A job reaches a stage that is named after a finished result ("parsed", "chunks_buffered") with all of it (RFC001).
    """
    if job.stage in (Stage.QUEUED, Stage.CHUNKING):
        return 0.0
    counter = STAGE_COUNTERS.get(Stage(job.stage))
    if counter is None:
        return 100.0
    total = int(job.progress.get(f"{counter}_total") or 0)
    done = int(job.progress.get(f"{counter}_done") or 0)
    return round(100.0 * min(done, total) / total, 1) if total else 0.0


def tenant_display_status(job: UploadJob, *, running: int) -> str:
    """Return the ``display_status`` of a tenant's job; ``running`` is the count of the user's working jobs."""
    most = settings.JOBS_ACTIVE_OF.get(job.user_id, settings.JOBS_ACTIVE_PER_USER)
    return display_status(job, is_starved=running >= most)


def display_status(job: UploadJob, *, is_starved: bool) -> str:
    """Return one of ``DISPLAY_STATUSES`` for any job; ``is_starved`` as ``starved_filter`` computes it."""
    match job.state:
        case State.DEADLETTER:
            return "dead"
        case State.RETRYABLE:
            return "retrying"
        case State.QUEUED if job.run_after is not None:
            return "waiting"
        case State.QUEUED:
            return "starved" if is_starved else "queued"
    return str(job.state)


def count_running(user_id: UUID) -> int:
    """Count the user's working jobs, without those of low priority, which yield their slots."""
    return UploadJob.objects.filter(user_id=user_id, state=State.WORKING, low_priority=False).count()


# Users without a free slot: for a job of normal priority, and for a job of low priority, which yields to the former and
# never takes the first slot where there are more. There are few: each slot is a busy worker. Parameters:
# claim_queries.concurrency_params().
_CAP = claim_queries.concurrency_limit_sql("user_id")
USERS_AT_LIMIT = f"""
SELECT user_id FROM upload_jobs WHERE state = 'working' AND NOT low_priority GROUP BY 1
HAVING count(*) >= {_CAP}"""
USERS_AT_LOW_PRIORITY_LIMIT = f"""
SELECT user_id FROM upload_jobs WHERE state = 'working' AND slot >= least(1, {_CAP} - 1) GROUP BY 1
HAVING count(*) >= greatest(1, {_CAP} - 1)"""
DUE = Q(state=State.QUEUED, run_after=None)


def starved_filter() -> Q:
    """Return the filter of due jobs (``DUE``) whose user has no free slot."""
    own, low = _raw(USERS_AT_LIMIT), _raw(USERS_AT_LOW_PRIORITY_LIMIT)
    return Q(low_priority=False, user_id__in=own) | Q(low_priority=True, user_id__in=low)


def _raw(sql: str) -> RawSQL:
    # Django requires positional parameters.
    caps = claim_queries.concurrency_params()
    params = [caps[name] for name in re.findall(r"%\((\w+)\)s", sql)]
    return RawSQL(re.sub(r"%\(\w+\)s", "%s", sql), params)  # noqa: S611  (constants)
