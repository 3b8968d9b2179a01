"""Periodic task of metrics: counts events, samples gauges, sums up spend and storage, in one cluster at a time."""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from django.db import DatabaseError, InterfaceError, connection, transaction
from django.db.models.functions import Now

from jobs.advisory_locks import try_lock_transaction
from jobs.cluster import maintenance
from jobs.safe_errors import safe_error_name
from metrics import event_counts, gauges, rollup_writer, spend_and_storage
from metrics.models import MeasurementRun

log = logging.getLogger("accessa.metrics")
T = TypeVar("T")

LOCK = "measuring"
MOVES, STANDING, SPENDING, STORAGE = MeasurementRun.Name
# Seconds between two runs; a run that takes long is made more rarely, so that it takes a fiftieth of the time at most.
INTERVALS = {STANDING: 25.0, SPENDING: 60.0, STORAGE: 600.0}
PAUSE_FACTOR = 50.0
RUN_FIELDS = ("counted_until", "measured_at", "seconds", "snapshot")
# Events are counted in steps: after a day away the task catches up hour by hour, for some seconds each time.
SHORTEST_STEP, FIRST_STEP, LONGEST_STEP = timedelta(seconds=30), timedelta(minutes=5), timedelta(days=1)
STEP_SECONDS, CATCH_UP_SECONDS = 1.0, 5.0


def start_collection() -> None:
    """Start to measure in the background: a snapshot of a million jobs takes part of a second."""
    maintenance.start_in_background(LOCK, collect_metrics, log=log, broke_off="Measuring broke off")


def collect_metrics() -> None:
    """Make the measurements that are due, unless another cluster makes them. One that fails stops no other."""
    measurements = {
        STANDING: _measure_gauges,
        SPENDING: spend_and_storage.update_daily_spend,
        STORAGE: _measure_storage,
    }
    for name in MeasurementRun.Name:
        try:
            if name == MOVES:
                _count_moves()
            else:
                _exclusively(partial(_measure_if_due, name, measurements[name]))
        except (DatabaseError, InterfaceError) as error:
            log.warning("Measuring broke off, of %s: %s", name, safe_error_name(error))
            connection.close_if_unusable_or_obsolete()


def _count_moves() -> None:
    """Count events up to now, or for ``CATCH_UP_SECONDS``, in steps by their number."""
    until, step = time.monotonic() + CATCH_UP_SECONDS, first_step()
    while True:
        try:
            seconds = _exclusively(partial(count_next_step, step))
        except DatabaseError:
            # The same step would take as long again.
            shorter = max(step / 2, SHORTEST_STEP).total_seconds()
            _save_run(["snapshot"], name=MOVES, seconds=0.0, snapshot={"step": shorter})
            raise
        if seconds is None or time.monotonic() >= until:
            return
        step = min(step * 2, LONGEST_STEP) if seconds < STEP_SECONDS / 4 else max(step / 2, SHORTEST_STEP)


def first_step() -> timedelta:
    snapshot = MeasurementRun.objects.filter(pk=MOVES).values_list("snapshot", flat=True).first() or {}
    return min(timedelta(seconds=snapshot["step"]), FIRST_STEP) if "step" in snapshot else FIRST_STEP


def _exclusively(work: Callable[[], T]) -> T | None:
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('statement_timeout', '60s', true)")
        return work() if try_lock_transaction(LOCK) else None


def count_next_step(step: timedelta) -> float | None:
    """Count the events of the next ``step``, in the caller's transaction, which holds the lock.

    Returns the seconds it took, or None when no more events can be counted yet.
    """
    started = time.monotonic()
    now, horizon = event_counts.visibility_horizon()
    last = MeasurementRun.objects.filter(pk=MOVES).first()
    since = last.counted_until if last and last.counted_until else event_counts.first_event_time(horizon)
    until = min(since + step, horizon)
    if until > since:
        samples = [*event_counts.count_events(since, until), *event_counts.count_syncs(since, until)]
        rollup_writer.add_samples([*samples, *event_counts.pop_vendor_calls(now)], now=now)
        seconds = time.monotonic() - started
        _save_run(name=MOVES, seconds=seconds, counted_until=until, snapshot={"step": step.total_seconds()})
    return None if until == horizon or until <= since else time.monotonic() - started


def _measure_if_due(name: MeasurementRun.Name, measure: Callable[[datetime, MeasurementRun | None], Any]) -> None:
    last = MeasurementRun.objects.filter(pk=name).first()
    now, _ = event_counts.visibility_horizon()
    if last and (now - last.measured_at).total_seconds() < max(INTERVALS[name], PAUSE_FACTOR * last.seconds):
        return
    started = time.monotonic()
    snapshot = measure(now, last)
    _save_run(name=name, seconds=time.monotonic() - started, snapshot=snapshot)


def _measure_gauges(now: datetime, last: MeasurementRun | None) -> dict[str, Any]:
    snapshot = gauges.collect_gauges()
    rollup_writer.add_samples(gauges.gauge_samples(snapshot, now), now=now)
    return snapshot


def _measure_storage(now: datetime, last: MeasurementRun | None) -> dict[str, Any]:
    rollup_writer.delete_expired(now)
    return spend_and_storage.update_storage_usage(now)


def _save_run(fields: Sequence[str] = RUN_FIELDS, **columns: Any) -> None:
    run = MeasurementRun(measured_at=Now(), **columns)
    MeasurementRun.objects.bulk_create([run], update_conflicts=True, unique_fields=["name"], update_fields=fields)


def is_behind() -> bool:
    last = MeasurementRun.objects.filter(pk=MOVES).first()
    _, horizon = event_counts.visibility_horizon()
    return last is None or last.counted_until is None or horizon - last.counted_until > FIRST_STEP
