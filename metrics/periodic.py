"""What the keeper measures from time to time, in whichever cluster comes first."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from django.db import DatabaseError, InterfaceError, connection, transaction

from jobs.advisory_locks import try_lock_transaction
from jobs.cluster import background
from jobs.errors import safe_error_name
from metrics import connector_gauges, cost_rollups, event_counts, gauges, rollups, tenant_totals, vendor_calls
from metrics.models import MeasurementRun

log = logging.getLogger("accessa.measures")
T = TypeVar("T")

MEASURING = "measuring"
MOVES, STANDING, SPENDING, STORAGE = "moves", "standing", "spending", "storage"
# How often, in seconds. What takes long is done the more rarely: measuring takes a fiftieth of the time at most.
EVERY = {STANDING: 25.0, SPENDING: 60.0, STORAGE: 600.0}
SHARE = 50.0
# Of the journal, so much at once: after a day away the sweep catches up hour by hour, for some seconds each time.
SHORTEST_STEP, FIRST_STEP, LONGEST_STEP = timedelta(seconds=30), timedelta(minutes=5), timedelta(days=1)
STEP_SECONDS, SWEEP_SECONDS = 1.0, 5.0

LAST = """
INSERT INTO measurement_runs AS m (name, upto, measured_at, seconds, told)
VALUES (%(name)s, %(upto)s, clock_timestamp(), %(seconds)s, %(told)s::jsonb)
ON CONFLICT (name) DO UPDATE SET
    upto = excluded.upto, measured_at = excluded.measured_at, seconds = excluded.seconds, told = excluded.told
"""
REMEMBER = """
INSERT INTO measurement_runs AS m (name, measured_at, seconds, told)
VALUES (%(name)s, clock_timestamp(), 0, %(told)s::jsonb)
ON CONFLICT (name) DO UPDATE SET told = excluded.told"""


def start_collection() -> None:
    """Begin to measure, if this process is not at it. Aside: a snapshot of a million jobs takes part of a second."""
    background.start_in_background(MEASURING, collect_metrics, log=log, broke_off="Measuring broke off")


def collect_metrics() -> None:
    """Measure what is due; nothing while another cluster does. What cannot be measured keeps nothing else from it."""
    _each(MOVES, _catch_up)
    for name, look in ((STANDING, _stand), (SPENDING, cost_rollups.update_daily_spend), (STORAGE, _weigh)):
        _each(name, partial(_alone, partial(_if_due, name, look)))


def _each(name: str, work: Callable[[], object]) -> None:
    try:
        work()
    except (DatabaseError, InterfaceError) as error:
        log.warning("Measuring broke off, of %s: %s", name, safe_error_name(error))
        connection.close_if_unusable_or_obsolete()


def _catch_up() -> None:
    """Count the journal up to now, or for ``SWEEP_SECONDS``, in steps that suit how busy it was."""
    until, step = time.monotonic() + SWEEP_SECONDS, _first_step()
    while True:
        try:
            took = _alone(partial(count_next_step, step))
        except DatabaseError:
            _remember(max(step / 2, SHORTEST_STEP))  # the same step would take as long again
            raise
        if took is None or time.monotonic() >= until:
            return
        step = min(step * 2, LONGEST_STEP) if took < STEP_SECONDS / 4 else max(step / 2, SHORTEST_STEP)


def _first_step() -> timedelta:
    told = MeasurementRun.objects.filter(pk=MOVES).values_list("told", flat=True).first() or {}
    return min(timedelta(seconds=told["step"]), FIRST_STEP) if "step" in told else FIRST_STEP


def _remember(step: timedelta) -> None:
    with connection.cursor() as cursor:
        cursor.execute(REMEMBER, {"name": MOVES, "told": json.dumps({"step": step.total_seconds()})})


def _alone(work: Callable[[], T]) -> T | None:
    """Do ``work`` in a transaction that no other process measures in meanwhile, or not at all."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', '60s', true)")
        return work() if try_lock_transaction(MEASURING) else None


def count_next_step(step: timedelta) -> float | None:
    """Count the next ``step`` of the journal, in a transaction in which nobody else does.

    Returns the seconds it took, or None when that was all there is.
    """
    began = time.monotonic()
    now, horizon = event_counts.visibility_horizon()
    last = MeasurementRun.objects.filter(pk=MOVES).first()
    since = last.upto if last and last.upto else event_counts.first_event_time(horizon)
    upto = min(since + step, horizon)
    if upto > since:
        found = [*event_counts.count_events(since, upto), *connector_gauges.count_syncs(since, upto)]
        rollups.add_samples([*found, *vendor_calls.pop_vendor_calls(now)], now=now)
        took = time.monotonic() - began
        _tell(MOVES, took, upto=upto, told={"step": step.total_seconds()})
    return None if upto == horizon or upto <= since else time.monotonic() - began


def _if_due(name: str, work: Callable[[datetime, MeasurementRun | None], Any]) -> None:
    last = MeasurementRun.objects.filter(pk=name).first()
    now, _ = event_counts.visibility_horizon()
    if last and (now - last.measured_at).total_seconds() < max(EVERY[name], SHARE * last.seconds):
        return
    began = time.monotonic()
    told = work(now, last)
    _tell(name, time.monotonic() - began, told=told)


def _stand(now: datetime, last: MeasurementRun | None) -> dict[str, Any]:
    told = gauges.collect_gauges()
    rollups.add_samples(gauges.gauge_samples(told, now), now=now)
    return told


def _weigh(now: datetime, last: MeasurementRun | None) -> dict[str, Any]:
    cost_rollups.update_storage_usage()
    rollups.delete_expired(now)
    return {"stored": tenant_totals.storage_totals(), "tenants": tenant_totals.largest_spenders(now)}


def _tell(name: str, seconds: float, *, upto: datetime | None = None, told: Any = None) -> None:
    values = {"name": name, "upto": upto, "seconds": seconds, "told": json.dumps(told or {})}
    with connection.cursor() as cursor:
        cursor.execute(LAST, values)


def is_behind_journal() -> bool:
    """Tell whether the journal has more to count than a sweep finds anyway."""
    last = MeasurementRun.objects.filter(pk=MOVES).first()
    _, horizon = event_counts.visibility_horizon()
    return last is None or last.upto is None or horizon - last.upto > FIRST_STEP
