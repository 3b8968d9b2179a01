"""Spend and storage by tenant, summed up by the periodic task.

A page or a scrape reads the sums that the last run kept, never a row for each tenant.
"""

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection, transaction

from metrics.models import MeasurementRun
from metrics.rollup_queries import PERIODS, Period

DAYS_SHOWN = 30  # as far back as any page looks; a first run counts them all
UPDATE_SECONDS = 5.0  # of one run; the next continues
LARGEST_TENANTS = 20  # all others are one

# A day is summed up until the one after it is over: an estimate of last night may have been settled this morning.
# Purchases after a failed attempt of their stage are spent for the retry, whether or not the failed one was charged.
SPEND = """
INSERT INTO daily_spends AS s (day, user_id, vendor, unit, calls, quantity, cents, unsettled_calls, unsettled_cents,
                               retry_cents)
SELECT (p.created_at AT TIME ZONE 'UTC')::date, p.user_id, p.vendor, p.unit, count(*), sum(p.quantity), sum(p.cents),
       count(*) FILTER (WHERE p.state <> 'settled'), coalesce(sum(p.cents) FILTER (WHERE p.state <> 'settled'), 0),
       coalesce(sum(p.cents) FILTER (WHERE EXISTS (
           SELECT FROM events e WHERE e.job_id = p.job_id AND e.ts < p.created_at AND e.type = 'retry'
               AND e.payload ->> 'stage' = p.stage)), 0)
FROM purchases p
WHERE p.created_at >= %(day)s::date::timestamp AT TIME ZONE 'UTC'
  AND p.created_at < (%(day)s::date + 1)::timestamp AT TIME ZONE 'UTC'
GROUP BY 1, 2, 3, 4
ON CONFLICT (day, user_id, vendor, unit) DO UPDATE SET
    calls = excluded.calls, quantity = excluded.quantity, cents = excluded.cents,
    unsettled_calls = excluded.unsettled_calls, unsettled_cents = excluded.unsettled_cents,
    -- Of a deleted document the events are gone, not the money.
    retry_cents = greatest(s.retry_cents, excluded.retry_cents)
"""
# The purchases were voided: the vendor certainly did not make them.
DELETE_VOIDED = """
DELETE FROM daily_spends s WHERE s.day = %(day)s::date AND NOT EXISTS (
    SELECT FROM purchases p WHERE p.user_id = s.user_id AND p.vendor = s.vendor AND p.unit = s.unit
        AND p.created_at >= s.day::timestamp AT TIME ZONE 'UTC'
        AND p.created_at < (s.day + 1)::timestamp AT TIME ZONE 'UTC')
"""
DELETE_EXPIRED = "DELETE FROM daily_spends WHERE day < (statement_timestamp() AT TIME ZONE 'UTC')::date - 800"
DAY_TOTALS = """
SELECT day::text, vendor, unit, sum(calls)::bigint, sum(quantity)::bigint, sum(cents)::float8,
       sum(retry_cents)::float8, sum(unsettled_cents)::float8
FROM daily_spends WHERE day >= %s GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"""
TENANT_TOTALS = """
SELECT user_id::text, sum(calls)::bigint, sum(cents)::float8, sum(retry_cents)::float8, sum(unsettled_cents)::float8
FROM daily_spends WHERE day >= %s GROUP BY 1 ORDER BY sum(cents) DESC, 1 LIMIT %s"""

STORAGE = """
INSERT INTO storage_usage (user_id, mime, documents, pages, bytes)
SELECT user_id, mime, count(*), coalesce(sum(pages), 0), sum(bytes_len) FROM documents WHERE stored_at IS NOT NULL
GROUP BY user_id, mime
"""
# Of the largest tenants each type by itself, the largest tenant first; of all others together, by type, without a name.
STORAGE_TOTALS = """
WITH largest AS (
    SELECT user_id, sum(bytes) AS size FROM storage_usage GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT %s
)
SELECT coalesce(l.user_id::text, ''), s.mime, sum(s.bytes)::bigint, sum(s.documents)::bigint, sum(s.pages)::bigint
FROM storage_usage s LEFT JOIN largest l USING (user_id)
GROUP BY l.user_id, l.size, s.mime ORDER BY l.size DESC NULLS LAST, l.user_id, s.mime"""


class DaySpend(NamedTuple):
    day: str
    vendor: str
    unit: str
    calls: int
    quantity: int
    cents: float
    retry_cents: float
    unsettled_cents: float


class SpendTotal(NamedTuple):
    """The spend of several days: ``name`` is the vendor or the tenant."""

    name: str
    calls: int
    cents: float
    retry_cents: float
    unsettled_cents: float


class StoredTotal(NamedTuple):
    """Stored documents of one type; the tenant ``""`` stands for all but the largest tenants."""

    tenant: str
    type: str
    bytes: int
    documents: int
    pages: int


def _rows(sql: str, *params: date | int) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def update_daily_spend(now: datetime, last: MeasurementRun | None) -> dict[str, Any]:
    """Sum up the purchases since the last run, day by day; return the snapshot that pages and scrapes read."""
    today = now.astimezone(UTC).date()
    snapshot = last.snapshot if last else {}
    if last is None or "days" not in snapshot:
        since = today - timedelta(days=DAYS_SHOWN)
    elif snapshot["next"]:
        since = date.fromisoformat(snapshot["next"])
    else:  # the clusters may have been down for days
        since = min(today, last.measured_at.astimezone(UTC).date()) - timedelta(days=1)
    day, until = since, time.monotonic() + UPDATE_SECONDS
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)")
        while day <= today and (day == since or time.monotonic() < until):
            for sql in (SPEND, DELETE_VOIDED):
                cursor.execute(sql, {"day": day})
            day += timedelta(days=1)
        cursor.execute(DELETE_EXPIRED)
    oldest = (today - timedelta(days=DAYS_SHOWN)).isoformat()
    earlier = [row for row in snapshot.get("days", []) if oldest <= row[0] < since.isoformat()]
    return {"days": [*earlier, *_rows(DAY_TOTALS, since)], "next": None if day > today else day.isoformat()}


def update_storage_usage(now: datetime) -> dict[str, Any]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM storage_usage")
        cursor.execute(STORAGE)
    tenants = {
        period.name: _rows(TENANT_TOTALS, (now - period.length).date(), LARGEST_TENANTS) for period in PERIODS.values()
    }
    return {"stored": _rows(STORAGE_TOTALS, LARGEST_TENANTS), "tenants": tenants}


def _snapshot(name: str) -> dict[str, Any]:
    return MeasurementRun.objects.filter(pk=name).values_list("snapshot", flat=True).first() or {}


def spend_since(day: date) -> list[DaySpend]:
    days = _snapshot(MeasurementRun.Name.SPENDING).get("days", [])
    return [DaySpend._make(row) for row in days if row[0] >= day.isoformat()]


def recent_spend(today: date) -> list[DaySpend]:
    rows = spend_since(today - timedelta(days=1))
    return [row._replace(day="today" if row.day == today.isoformat() else "yesterday") for row in rows]


def spend_by_vendor(since: date) -> list[SpendTotal]:
    totals: dict[str, SpendTotal] = {}
    for row in spend_since(since):
        _, *before = totals.get(row.vendor, SpendTotal(row.vendor, 0, 0.0, 0.0, 0.0))
        spent = (row.calls, row.cents, row.retry_cents, row.unsettled_cents)
        totals[row.vendor] = SpendTotal._make((row.vendor, *map(sum, zip(before, spent, strict=True))))
    return sorted(totals.values(), key=lambda total: -total.cents)


def spend_by_tenant(period: Period) -> list[SpendTotal]:
    rows = _snapshot(MeasurementRun.Name.STORAGE).get("tenants", {}).get(period.name, [])
    return [SpendTotal._make(row) for row in rows]


def _stored_totals() -> list[StoredTotal]:
    rows = _snapshot(MeasurementRun.Name.STORAGE).get("stored", [])
    # Without the slash of the media type, which no label may have.
    return [StoredTotal(tenant, mime.rpartition("/")[2], *rest) for tenant, mime, *rest in rows]


def stored_by_tenant(most: int) -> list[tuple[Sequence[str], float]]:
    totals = _stored_totals()
    named = list(dict.fromkeys(row.tenant for row in totals if row.tenant))[:most]
    others = Counter[str]()
    for row in totals:
        others.update({} if row.tenant in named else {row.type: row.bytes})
    sizes: list[tuple[Sequence[str], float]] = [([r.tenant, r.type], r.bytes) for r in totals if r.tenant in named]
    return sizes + [(["others", type_], size) for type_, size in sorted(others.items())]


def stored_by_type() -> list[tuple[str, int, int]]:
    documents, pages = Counter[str](), Counter[str]()
    for row in _stored_totals():
        documents[row.type] += row.documents
        pages[row.type] += row.pages
    return [(type_, documents[type_], pages[type_]) for type_ in sorted(documents)]
