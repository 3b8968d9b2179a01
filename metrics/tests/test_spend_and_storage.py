"""Spend and storage sums: late purchases are counted, and no page reads a row for each tenant."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from prometheus_client import CollectorRegistry, generate_latest

from metrics import periodic, rollup_queries, spend_and_storage
from metrics.models import DailySpend, MeasurementRun
from metrics.prometheus_collector import Collector
from metrics.rollup_queries import PERIODS
from metrics.tests.event_histories import collect_again, database_time
from vendors import ledger
from vendors.models import Purchase

pytestmark = pytest.mark.django_db(transaction=True)


def reserve(days_ago: int, cents: str, user_id: UUID | None = None) -> Any:
    what: dict[str, Any] = {"vendor": "openai", "model": "m", "unit": "tokens", "quantity": 100, "stage": "embedding"}
    purchase = ledger.reserve(user_id=user_id or uuid4(), cents=Decimal(cents), **what)
    Purchase.objects.update_or_create(pk=purchase, defaults={"created_at": database_time() - timedelta(days=days_ago)})
    return purchase


def days() -> dict[int, Decimal]:
    today = database_time().astimezone(UTC).date()
    return {(today - row.day).days: row.cents for row in DailySpend.objects.order_by("day")}


def last_measured(days_ago: int) -> None:
    MeasurementRun.objects.filter(pk=periodic.SPENDING).update(measured_at=database_time() - timedelta(days=days_ago))


def test_a_first_run_counts_the_last_thirty_days() -> None:
    for ago in (0, 1, 7, 29, 33):
        reserve(ago, "2")

    periodic.collect_metrics()

    assert set(days()) == {0, 1, 7, 29}
    assert sum(row.cents for row in spend_and_storage.spend_since(database_time().date() - timedelta(days=30))) == 8


def test_purchases_before_a_downtime_are_counted() -> None:
    periodic.collect_metrics()
    reserve(5, "3"), reserve(4, "4")
    last_measured(4)

    periodic.collect_metrics()

    assert days() == {5: 3, 4: 4}
    assert [row.cents for row in spend_and_storage.spend_by_vendor(database_time().date() - timedelta(days=7))] == [7]


def test_purchases_voided_during_a_downtime_are_not_counted() -> None:
    void = reserve(5, "3")
    periodic.collect_metrics()
    assert days() == {5: 3}
    ledger.void(void)
    last_measured(4)

    periodic.collect_metrics()

    assert days() == {}


@pytest.mark.slow
def test_a_long_count_continues_in_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spend_and_storage, "UPDATE_SECONDS", -1.0)
    for ago in (30, 29, 0):
        reserve(ago, "2")

    periodic.collect_metrics()
    assert set(days()) == {30}
    for _ in range(30):
        collect_again()

    assert set(days()) == {30, 29, 0}
    assert MeasurementRun.objects.get(pk=periodic.SPENDING).snapshot["next"] is None
    assert len(spend_and_storage.spend_since(database_time().date() - timedelta(days=30))) == 3


def test_the_largest_spenders_and_tenants_are_named() -> None:
    tenants = [uuid4() for _ in range(25)]
    for n, tenant in enumerate(tenants):
        reserve(3, str(n + 1), tenant)
    reserve(0, "5", tenants[0])

    collect_again()

    week = spend_and_storage.spend_by_tenant(PERIODS["7d"])
    assert [each.name for each in week[:2]] == [str(tenants[24]), str(tenants[23])]
    assert len(week) == 20
    assert [each.name for each in spend_and_storage.spend_by_tenant(PERIODS["24h"])] == [str(tenants[0])]


def test_pages_and_scrapes_read_no_rows_of_tenants() -> None:
    reserve(0, "5")
    collect_again()
    registry = CollectorRegistry()
    registry.register(Collector())

    with CaptureQueriesContext(connection) as queries:
        generate_latest(registry)
        spend_and_storage.spend_by_tenant(PERIODS["30d"])
        spend_and_storage.spend_by_vendor(datetime(2026, 1, 1, tzinfo=UTC).date())
        spend_and_storage.stored_by_tenant(10)

    assert not [
        query["sql"] for query in queries if "daily_spends" in query["sql"] or '"storage_usage"' in query["sql"]
    ]


def test_a_label_of_none_is_all_together() -> None:
    periodic.collect_metrics()

    assert rollup_queries.series("status", PERIODS["1h"], database_time(), label=None).keys() == {""}
    assert len(rollup_queries.series("status", PERIODS["1h"], database_time())) > 1
