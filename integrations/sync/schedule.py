"""What changed since yesterday, fetched every night: off until an operator asks for it.

The plan is a row of django-q2's schedules, which says when and keeps how far a night is. Our doorbell carries no tasks
and may be any of its brokers, so its scheduler is off, and a sweep of the keeper runs what is due.
"""

from __future__ import annotations

import ast
import logging
import time
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.utils import timezone
from django_q.models import Schedule

from accounts.errors import ApiError
from integrations.models import ConnectedSource, IngestionJob
from integrations.sync import sync_jobs
from integrations.sync.pgmq import TABLE
from jobs.cluster import background

log = logging.getLogger("accessa.integrations")

NAME = "connectors nightly"
FUNC = "integrations.sync.schedule.run_nightly"
BATCH = 50
MOST_WAITING = 500  # messages: what a tenant asks for by day waits behind no more of the night's
SECONDS = 10.0  # of a sweep; the next goes on
FIRST = UUID(int=0)
NEXT = """
SELECT s.id FROM connected_sources s
WHERE s.status = 'active' AND s.id > %(after)s AND NOT EXISTS (
    SELECT FROM ingestion_jobs j WHERE j.source_id = s.id
        AND (j.created_at >= %(night)s OR j.status IN ('queued', 'running')))
ORDER BY s.id LIMIT %(most)s
"""
WAITING = f"SELECT count(*) FROM (SELECT FROM {TABLE} LIMIT %s) waiting"


def schedule_nightly(hour: int, minute: int) -> Schedule:
    """Fetch what changed every night at this time, UTC, from the next time on that it is so late."""
    now = timezone.now()
    at = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    first = at if at > now else at + timedelta(days=1)
    Schedule.objects.filter(name=NAME).delete()
    return Schedule.objects.create(name=NAME, func=FUNC, schedule_type=Schedule.DAILY, next_run=first)


def cancel_nightly() -> bool:
    """Plan no more nights; return whether any were planned."""
    return bool(Schedule.objects.filter(name=NAME).delete()[0])


def next_nightly_run() -> datetime | None:
    """Return when the next night begins, or None where none is planned; a moment that has passed: it is going on."""
    begins: datetime | None = Schedule.objects.filter(name=NAME).values_list("next_run", flat=True).first()
    return begins


def start_due_nightly() -> None:
    """Go on with the night, if it is due. Aside: the keeper has other things to do."""
    if _due().exists():
        background.start_in_background("nightly", run_nightly, log=log, broke_off="The nightly syncs broke off")


def run_nightly() -> None:
    """Begin syncs until the night is through, the queue is long enough, or ``SECONDS`` have passed."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and _waiting() < MOST_WAITING:
        if not _batch():
            return


def _due() -> Any:
    """Return the plan's row as a query, if a night is due."""
    return Schedule.objects.filter(name=NAME, next_run__lte=timezone.now())


def _waiting() -> int:
    with connection.cursor() as cursor:
        cursor.execute(WAITING, [MOST_WAITING])
        return int(cursor.fetchone()[0])


@transaction.atomic
def _batch() -> bool:
    """Begin the syncs of some sources; return whether there may be more. Of several clusters one does so at a time."""
    night = _due().select_for_update(skip_locked=True).first()
    if night is None or night.next_run is None:
        return False
    tonight, tomorrow = _nights(night, night.next_run)
    found = _next(_after(night), tonight)
    begun = sum(_begun(source) for source in found)
    if len(found) == BATCH:
        night.kwargs = repr({"after": str(found[-1].pk)})
    else:
        night.next_run, night.kwargs = tomorrow, None
    night.save(update_fields=["next_run", "kwargs"])
    log.info("Nightly: %d of %d syncs begun", begun, len(found))
    return len(found) == BATCH


def _after(night: Schedule) -> UUID:
    return UUID(ast.literal_eval(night.kwargs)["after"]) if night.kwargs else FIRST


def _next(after: UUID, night: datetime) -> list[ConnectedSource]:
    with connection.cursor() as cursor:
        cursor.execute(NEXT, {"after": after, "night": night, "most": BATCH})
        ids = [pk for (pk,) in cursor.fetchall()]
    return list(ConnectedSource.objects.filter(pk__in=ids).order_by("pk"))


def _begun(source: ConnectedSource) -> bool:
    try:
        with transaction.atomic():
            sync_jobs.start_sync(source, IngestionJob.Kind.DELTA, by="nightly")
    except ApiError:  # a tenant was faster, or has disconnected it
        return False
    return True


def _nights(night: Schedule, begins: datetime) -> tuple[datetime, datetime]:
    """Return the last planned moment that has passed and the next: nights that were missed are made up for by one."""
    following = night.calculate_next_run(begins)
    while following <= timezone.now():
        begins, following = following, night.calculate_next_run(following)
    return begins, following
