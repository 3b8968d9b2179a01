"""What was spent and what is kept, and how the vendors are: small tables, read as they are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Sum

from measures.models import Spend, Stored

BREAKERS = """
SELECT split_part(key, ':', 1), split_part(key, '/', 2), state, faults FROM vendor_breakers ORDER BY 1, 2"""
PAUSES = """
SELECT split_part(key, ':', 1), coalesce(pause_reason, ''), max(extract(epoch FROM paused_until - clock_timestamp()))
FROM vendor_paces WHERE paused_until > clock_timestamp() GROUP BY 1, 2"""
RECENT = """
SELECT CASE WHEN day = (statement_timestamp() AT TIME ZONE 'UTC')::date THEN 'today' ELSE 'yesterday' END,
       vendor, unit, sum(cents), sum(retry_cents), sum(unsettled_cents), sum(quantity), sum(calls)
FROM spends WHERE day >= (statement_timestamp() AT TIME ZONE 'UTC')::date - 1 GROUP BY 1, 2, 3"""


class Health(NamedTuple):
    vendor: str
    part: str
    state: str
    faults: int


class Spent(NamedTuple):
    day: str
    vendor: str
    unit: str
    cents: Decimal
    retry_cents: Decimal
    unsettled_cents: Decimal
    quantity: int
    calls: int


def _rows(sql: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def breakers() -> list[Health]:
    """Return the state of each vendor's breakers; of several keys the worst."""
    order = ("closed", "half-open", "open")
    found: dict[tuple[str, str], Health] = {}
    for row in map(Health._make, _rows(BREAKERS)):
        other = found.get((row.vendor, row.part))
        if other is None or order.index(row.state) > order.index(other.state):
            found[row.vendor, row.part] = row
    return list(found.values())


def pauses() -> list[tuple[Sequence[str], float]]:
    return [([vendor, reason], float(seconds)) for vendor, reason, seconds in _rows(PAUSES)]


def recent_spend() -> list[Spent]:
    """Return what today and yesterday cost, by vendor and unit."""
    return [Spent._make(row) for row in _rows(RECENT)]


def spend(since: date, *by: str) -> list[dict[str, Any]]:
    """Return what was spent from ``since`` on, grouped by ``by``, the most first."""
    sums = {
        "cents": Sum("cents"),
        "retry_cents": Sum("retry_cents"),
        "unsettled_cents": Sum("unsettled_cents"),
        "calls": Sum("calls"),
    }
    grouped = Spend.objects.filter(day__gte=since).values(*by).annotate(**{f"all_{k}": v for k, v in sums.items()})
    return list(grouped.order_by("-all_cents", *by))


def stored_by_tenant(most: int) -> list[tuple[Sequence[str], float]]:
    """Return (tenant, type) and bytes: of the ``most`` largest tenants each, of the others together."""
    largest = [
        row["user_id"]
        for row in Stored.objects.values("user_id").annotate(all_bytes=Sum("bytes")).order_by("-all_bytes")[:most]
    ]
    named = Stored.objects.filter(user_id__in=largest).values_list("user_id", "mime", "bytes")
    rest = Stored.objects.exclude(user_id__in=largest).values("mime").annotate(all_bytes=Sum("bytes"))
    found: list[tuple[Sequence[str], float]] = [([str(user_id), _type(mime)], size) for user_id, mime, size in named]
    return found + [(["others", _type(row["mime"])], row["all_bytes"]) for row in rest]


def stored_by_type() -> list[tuple[str, int, int]]:
    """Return each type of document with how many there are, and their pages."""
    rows = Stored.objects.values("mime").annotate(all_documents=Sum("documents"), all_pages=Sum("pages"))
    return [(_type(row["mime"]), row["all_documents"], row["all_pages"]) for row in rows.order_by("mime")]


def _type(mime: str) -> str:
    return mime.rpartition("/")[2]  # a slash is no part of a label that is shown as it is
