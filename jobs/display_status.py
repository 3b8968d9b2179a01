"""Progress of a job in percent, and its display status: queued, waiting, starved, working, retrying, dead, done."""

import re
from uuid import UUID

from django.conf import settings
from django.db.models import Q
from django.db.models.expressions import RawSQL

from jobs import claims
from jobs.choices import Stage, State
from jobs.models import UploadJob

DISPLAY_STATUSES = ("queued", "waiting", "starved", "working", "retrying", "dead", "done")


def stage_pct(job: UploadJob) -> float:
    """Return the percentage of the current stage that is done; only embedding counts within its stage."""
    if job.state == State.DONE:
        return 100.0
    total = job.progress.get("embeds_total") or 0
    if job.stage == Stage.EMBEDDING and total:
        return round(100.0 * int(job.progress.get("embeds_done", 0)) / int(total), 1)
    return 0.0


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
    """Count the user's working jobs, without those of campaigns, which yield their slots."""
    return UploadJob.objects.filter(user_id=user_id, state=State.WORKING, campaign_id=None).count()


# Users without a free slot: for a job of their own, to which a campaign's job yields, and for a campaign's job, which
# never takes the first slot where there are more. There are few: each slot is a busy worker. Parameters:
# claims.concurrency_params().
_CAP = claims.concurrency_limit_sql("user_id")
USERS_AT_LIMIT = f"""
SELECT user_id FROM upload_jobs WHERE state = 'working' AND campaign_id IS NULL GROUP BY 1
HAVING count(*) >= {_CAP}"""
USERS_AT_CAMPAIGN_LIMIT = f"""
SELECT user_id FROM upload_jobs WHERE state = 'working' AND slot >= least(1, {_CAP} - 1) GROUP BY 1
HAVING count(*) >= greatest(1, {_CAP} - 1)"""
DUE = Q(state=State.QUEUED, run_after=None)


def starved_filter() -> Q:
    """Return the filter of due jobs (``DUE``) whose user has no free slot."""
    own, low = _raw(USERS_AT_LIMIT), _raw(USERS_AT_CAMPAIGN_LIMIT)
    return Q(campaign_id=None, user_id__in=own) | Q(campaign_id__isnull=False, user_id__in=low)


def _raw(sql: str) -> RawSQL:
    # Django requires positional parameters.
    caps = claims.concurrency_params()
    params = [caps[name] for name in re.findall(r"%\((\w+)\)s", sql)]
    return RawSQL(re.sub(r"%\(\w+\)s", "%s", sql), params)  # noqa: S611  (constants)
