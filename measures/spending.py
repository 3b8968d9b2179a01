"""What was spent, by day, tenant and vendor, and what is kept, by tenant and type of document."""

from __future__ import annotations

from django.db import connection, transaction

# Today and yesterday are counted anew: an estimate of last night may have been settled this morning. Spent in tries
# after a failed one is spent for the retry, whether or not the failed one was charged.
SPEND = """
INSERT INTO spends AS s (day, user_id, vendor, unit, calls, quantity, cents, unsettled_calls, unsettled_cents,
                         retry_cents)
SELECT (p.created_at AT TIME ZONE 'UTC')::date, p.user_id, p.vendor, p.unit, count(*), sum(p.quantity), sum(p.cents),
       count(*) FILTER (WHERE p.state <> 'settled'), coalesce(sum(p.cents) FILTER (WHERE p.state <> 'settled'), 0),
       coalesce(sum(p.cents) FILTER (WHERE EXISTS (
           SELECT FROM events e WHERE e.job_id = p.job_id AND e.ts < p.created_at AND e.type = 'retry'
               AND e.payload ->> 'stage' = p.stage)), 0)
FROM purchases p
WHERE p.created_at >= date_trunc('day', statement_timestamp(), 'UTC') - interval '1 day'
GROUP BY 1, 2, 3, 4
ON CONFLICT (day, user_id, vendor, unit) DO UPDATE SET
    calls = excluded.calls, quantity = excluded.quantity, cents = excluded.cents,
    unsettled_calls = excluded.unsettled_calls, unsettled_cents = excluded.unsettled_cents,
    -- Of a deleted document the events are gone, not the money.
    retry_cents = greatest(s.retry_cents, excluded.retry_cents)
"""
# What was taken back, because the vendor certainly did not do it.
VOIDED = """
DELETE FROM spends s WHERE s.day >= (statement_timestamp() AT TIME ZONE 'UTC')::date - 1 AND NOT EXISTS (
    SELECT FROM purchases p WHERE p.user_id = s.user_id AND p.vendor = s.vendor AND p.unit = s.unit
        AND p.created_at >= s.day::timestamp AT TIME ZONE 'UTC'
        AND p.created_at < (s.day + 1)::timestamp AT TIME ZONE 'UTC')
"""
FORGET = "DELETE FROM spends WHERE day < (statement_timestamp() AT TIME ZONE 'UTC')::date - 800"

STORED = """
INSERT INTO stored (user_id, mime, documents, pages, bytes)
SELECT user_id, mime, count(*), coalesce(sum(pages), 0), sum(bytes_len) FROM documents WHERE stored_at IS NOT NULL
GROUP BY user_id, mime
"""


def sum_up() -> None:
    """Write what today and yesterday cost."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)")
        for sql in (SPEND, VOIDED, FORGET):
            cursor.execute(sql)


def weigh() -> None:
    """Write what is stored, in the place of what was written before."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM stored")
        cursor.execute(STORED)
