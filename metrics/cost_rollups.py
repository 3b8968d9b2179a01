"""What was spent, by day, tenant and vendor, and what is kept, by tenant and type of document."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db import connection, transaction

from metrics import tenant_totals
from metrics.models import MeasurementRun

KEPT_DAYS = 30  # as far back as any page looks; a first run counts them all
SECONDS = 5.0  # so long at once; the next sweep goes on

# A day is counted anew until the one after it is over: an estimate of last night may have been settled this morning.
# Spent in tries after a failed one is spent for the retry, whether or not the failed one was charged.
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
# What was taken back, because the vendor certainly did not do it.
VOIDED = """
DELETE FROM daily_spends s WHERE s.day = %(day)s::date AND NOT EXISTS (
    SELECT FROM purchases p WHERE p.user_id = s.user_id AND p.vendor = s.vendor AND p.unit = s.unit
        AND p.created_at >= s.day::timestamp AT TIME ZONE 'UTC'
        AND p.created_at < (s.day + 1)::timestamp AT TIME ZONE 'UTC')
"""
FORGET = "DELETE FROM daily_spends WHERE day < (statement_timestamp() AT TIME ZONE 'UTC')::date - 800"

STORED = """
INSERT INTO storage_usage (user_id, mime, documents, pages, bytes)
SELECT user_id, mime, count(*), coalesce(sum(pages), 0), sum(bytes_len) FROM documents WHERE stored_at IS NOT NULL
GROUP BY user_id, mime
"""


def update_daily_spend(now: datetime, last: MeasurementRun | None) -> dict[str, Any]:
    """Write what was spent since it was last looked at, day by day; return what the pages show of it."""
    today = now.astimezone(UTC).date()
    since = day = _since(today, last)
    until = time.monotonic() + SECONDS
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)")
        while day <= today and (day == since or time.monotonic() < until):
            for sql in (SPEND, VOIDED):
                cursor.execute(sql, {"day": day})
            day += timedelta(days=1)
        cursor.execute(FORGET)
    oldest = (today - timedelta(days=KEPT_DAYS)).isoformat()
    kept = [row for row in (last.told if last else {}).get("days", []) if oldest <= row[0] < since.isoformat()]
    return {"days": [*kept, *tenant_totals.daily_spend_totals(since)], "next": None if day > today else day.isoformat()}


def _since(today: date, last: MeasurementRun | None) -> date:
    """Return the first day to count: the clusters may have stood still for days."""
    if last is None or "days" not in last.told:
        return today - timedelta(days=KEPT_DAYS)
    if last.told["next"]:
        return date.fromisoformat(last.told["next"])
    return min(today, last.measured_at.astimezone(UTC).date()) - timedelta(days=1)


def update_storage_usage() -> None:
    """Write what is stored, in the place of what was written before."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM storage_usage")
        cursor.execute(STORED)
