"""Sums over all tenants, made by the sweeps: a page or a scrape reads what they kept, never a row for each tenant."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from django.db import connection

from metrics.queries import PERIODS

LARGEST = 20  # tenants that are named; all others are one
DAYS = """
SELECT day::text, vendor, unit, sum(calls)::bigint, sum(quantity)::bigint, sum(cents)::float8,
       sum(retry_cents)::float8, sum(unsettled_cents)::float8
FROM daily_spends WHERE day >= %s GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"""
TENANTS = """
SELECT user_id::text, sum(calls)::bigint, sum(cents)::float8, sum(retry_cents)::float8, sum(unsettled_cents)::float8
FROM daily_spends WHERE day >= %s GROUP BY 1 ORDER BY sum(cents) DESC, 1 LIMIT %s"""
# Of the largest, each type by itself, the largest tenant first; of all others together, by type.
STORED = """
WITH largest AS (
    SELECT user_id, sum(bytes) AS size FROM storage_usage GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT %s
)
SELECT coalesce(l.user_id::text, ''), s.mime, sum(s.bytes)::bigint, sum(s.documents)::bigint, sum(s.pages)::bigint
FROM storage_usage s LEFT JOIN largest l USING (user_id)
GROUP BY l.user_id, l.size, s.mime ORDER BY l.size DESC NULLS LAST, l.user_id, s.mime"""

Rows = list[Sequence[Any]]


def _rows(sql: str, *values: date | int) -> Rows:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        return list(cursor.fetchall())


def daily_spend_totals(since: date) -> Rows:
    """Return what each day from ``since`` on cost, by vendor and unit."""
    return _rows(DAYS, since)


def largest_spenders(now: datetime) -> dict[str, Rows]:
    """Return who has spent the most, for each period of the dashboard, in whole days."""
    return {period.name: _rows(TENANTS, (now - period.length).date(), LARGEST) for period in PERIODS.values()}


def storage_totals() -> Rows:
    """Return what is kept, by tenant and type; all but the largest tenants together, under no name."""
    return _rows(STORED, LARGEST)
