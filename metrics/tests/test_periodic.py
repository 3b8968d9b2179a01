"""Periodic measurements: one that fails stops no other, and is retried in a smaller step."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connection

from metrics import periodic
from metrics.models import MeasurementRun
from metrics.tests.event_histories import History, collect_again, database_time, rollups_of

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def without(table: str) -> Iterator[None]:
    """As if what reads ``table`` failed."""
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME TO away")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE away RENAME TO {table}")


def measured() -> set[str]:
    return set(MeasurementRun.objects.exclude(seconds=0).values_list("name", flat=True))


@pytest.mark.parametrize(
    ("table", "fails"),
    [
        ("events", {periodic.MOVES}),
        ("clusters", {periodic.STANDING}),
        ("purchases", {periodic.SPENDING}),
        ("storage_usage", {periodic.STORAGE}),
    ],
)
def test_a_failed_measurement_stops_no_other(table: str, fails: set[str]) -> None:
    History(database_time() - timedelta(hours=1))

    with without(table):
        periodic.collect_metrics()

    kinds = {periodic.MOVES, periodic.STANDING, periodic.SPENDING, periodic.STORAGE}
    assert kinds - measured() >= fails
    assert kinds - measured() <= fails | ({periodic.SPENDING} if table == "events" else set())
    collect_again()
    assert measured() == kinds


def test_a_failed_step_is_retried_smaller_and_grows_again() -> None:
    History(database_time() - timedelta(hours=3))

    with without("vendor_calls"):
        periodic.collect_metrics()
        periodic.collect_metrics()
    assert periodic.first_step() == periodic.FIRST_STEP / 4
    assert not rollups_of("declared")

    periodic.collect_metrics()

    assert rollups_of("declared")["insurance",].count == 1
    assert periodic.first_step() == periodic.FIRST_STEP
