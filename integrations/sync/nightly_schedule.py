"""Nightly schedule: a delta sync of every source each night, off until an operator plans it.

The plan is a row of django-q2's schedules, with the next night's time and the position of the current one. Our broker
carries no tasks and may be any of django-q2's, so its scheduler is off, and a periodic task runs what is due.
"""

import ast
import logging
import time
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.utils import timezone
from django_q.models import Schedule

from accounts.errors import ApiError
from integrations.models import ConnectedSource, IngestionJob
from integrations.sync import lifecycle
from integrations.sync.pgmq import TABLE
from jobs.cluster import maintenance

log = logging.getLogger("accessa.integrations")

NAME = "connectors nightly"
FUNC = "integrations.sync.nightly_schedule.run_nightly"
BATCH = 50
MOST_WAITING = 500  # messages: a tenant's own sync waits behind no more of the night's
SECONDS = 10.0  # of a run; the next one continues
NEXT_SOURCES = """
SELECT s.id FROM connected_sources s
WHERE s.status = 'active' AND s.id > %(after)s AND NOT EXISTS (
    SELECT FROM ingestion_jobs j WHERE j.source_id = s.id
        AND (j.created_at >= %(night)s OR j.status IN ('queued', 'running')))
ORDER BY s.id LIMIT %(most)s
"""
WAITING = f"SELECT count(*) FROM (SELECT FROM {TABLE} LIMIT %s) waiting"


def schedule_nightly(hour: int, minute: int) -> Schedule:
    """Plan a sync of all sources every day at this time, UTC, from its next occurrence on."""
    now = timezone.now()
    at = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    first = at if at > now else at + timedelta(days=1)
    Schedule.objects.filter(name=NAME).delete()
    return Schedule.objects.create(name=NAME, func=FUNC, schedule_type=Schedule.DAILY, next_run=first)


def cancel_nightly() -> bool:
    """Delete the plan; return whether there was one."""
    return bool(Schedule.objects.filter(name=NAME).delete()[0])


def next_nightly_run() -> datetime | None:
    """Return when the next night begins, or None without a plan; a past time means that it is under way."""
    next_run: datetime | None = Schedule.objects.filter(name=NAME).values_list("next_run", flat=True).first()
    return next_run


def start_due_nightly() -> None:
    """Continue a due night in the background, to not block the maintenance loop."""
    if _due().exists():
        maintenance.start_in_background("nightly", run_nightly, log=log, broke_off="The nightly syncs broke off")


def run_nightly() -> None:
    """Start syncs until the night is complete, the queue is long enough, or ``SECONDS`` have passed."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        with connection.cursor() as cursor:
            cursor.execute(WAITING, [MOST_WAITING])
            waiting = int(cursor.fetchone()[0])
        if waiting >= MOST_WAITING or not _start_batch():
            return


def _due() -> Any:
    return Schedule.objects.filter(name=NAME, next_run__lte=timezone.now())


@transaction.atomic
def _start_batch() -> bool:
    """Start the syncs of some sources; return whether there may be more. One of several clusters does so at a time."""
    plan = _due().select_for_update(skip_locked=True).first()
    if plan is None or plan.next_run is None:
        return False
    # The last planned time that has passed, and the next: one night makes up for all missed ones.
    tonight, tomorrow = plan.next_run, plan.calculate_next_run(plan.next_run)
    while tomorrow <= timezone.now():
        tonight, tomorrow = tomorrow, plan.calculate_next_run(tomorrow)
    after = UUID(ast.literal_eval(plan.kwargs)["after"]) if plan.kwargs else UUID(int=0)
    with connection.cursor() as cursor:
        cursor.execute(NEXT_SOURCES, {"after": after, "night": tonight, "most": BATCH})
        ids = [pk for (pk,) in cursor.fetchall()]
    sources = list(ConnectedSource.objects.filter(pk__in=ids).order_by("pk"))
    count = 0
    for source in sources:
        with suppress(ApiError), transaction.atomic():  # the tenant has started one meanwhile, or has disconnected it
            lifecycle.start_sync(source, IngestionJob.Kind.DELTA, by="nightly")
            count += 1
    if len(sources) == BATCH:
        plan.kwargs = repr({"after": str(sources[-1].pk)})
    else:
        plan.next_run, plan.kwargs = tomorrow, None
    plan.save(update_fields=["next_run", "kwargs"])
    log.info("Nightly: %d of %d syncs begun", count, len(sources))
    return len(sources) == BATCH
