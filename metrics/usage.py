"""What was spent and what is kept, as the sweeps have summed it up, and how the vendors are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

from django.db import connection

from metrics.models import MeasurementRun
from metrics.periodic import SPENDING, STORAGE
from metrics.queries import Period

BREAKERS = """
SELECT split_part(key, ':', 1), split_part(key, '/', 2), state, faults FROM vendor_breakers ORDER BY 1, 2"""
PAUSES = """
SELECT split_part(key, ':', 1), coalesce(pause_reason, ''), max(extract(epoch FROM paused_until - clock_timestamp()))
FROM vendor_rate_limits WHERE paused_until > clock_timestamp() GROUP BY 1, 2"""


class BreakerState(NamedTuple):
    vendor: str
    part: str
    state: str
    faults: int


class DaySpend(NamedTuple):
    """What was spent on one day."""

    day: str
    vendor: str
    unit: str
    calls: int
    quantity: int
    cents: float
    retry_cents: float
    unsettled_cents: float


class SpendTotal(NamedTuple):
    """What was spent over several days, by or for whom ``name`` says."""

    name: str
    calls: int
    cents: float
    retry_cents: float
    unsettled_cents: float


class StoredTotal(NamedTuple):
    """What is stored of one type; of the tenant ``""``: of all but the largest tenants."""

    tenant: str
    type: str
    bytes: int
    documents: int
    pages: int


def _rows(sql: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def _told(measurement: str) -> dict[str, Any]:
    found = MeasurementRun.objects.filter(pk=measurement).values_list("told", flat=True).first()
    return found or {}


def breaker_states() -> list[BreakerState]:
    """Return the state of each vendor's breakers; of several keys the worst."""
    order = ("closed", "half-open", "open")
    found: dict[tuple[str, str], BreakerState] = {}
    for row in map(BreakerState._make, _rows(BREAKERS)):
        other = found.get((row.vendor, row.part))
        if other is None or order.index(row.state) > order.index(other.state):
            found[row.vendor, row.part] = row
    return list(found.values())


def vendor_pauses() -> list[tuple[Sequence[str], float]]:
    return [([vendor, reason], float(seconds)) for vendor, reason, seconds in _rows(PAUSES)]


def spend_since(day: date) -> list[DaySpend]:
    """Return what each day from ``day`` on cost, by vendor and unit, the oldest first."""
    return [DaySpend._make(row) for row in _told(SPENDING).get("days", []) if row[0] >= day.isoformat()]


def recent_spend(today: date) -> list[DaySpend]:
    """Return what today and yesterday cost, by vendor and unit; ``day`` is the word."""
    found = spend_since(today - timedelta(days=1))
    return [row._replace(day="today" if row.day == today.isoformat() else "yesterday") for row in found]


def spend_by_vendor(since: date) -> list[SpendTotal]:
    """Return what each vendor got from the day ``since`` on, the most first."""
    found: dict[str, SpendTotal] = {}
    for row in spend_since(since):
        before = found.get(row.vendor, SpendTotal(row.vendor, 0, 0.0, 0.0, 0.0))
        found[row.vendor] = SpendTotal(
            row.vendor,
            before.calls + row.calls,
            before.cents + row.cents,
            before.retry_cents + row.retry_cents,
            before.unsettled_cents + row.unsettled_cents,
        )
    return sorted(found.values(), key=lambda amount: -amount.cents)


def spend_by_tenant(period: Period) -> list[SpendTotal]:
    """Return the tenants who have spent the most, the most first."""
    return [SpendTotal._make(row) for row in _told(STORAGE).get("tenants", {}).get(period.name, [])]


def stored_by_tenant(most: int) -> list[tuple[Sequence[str], float]]:
    """Return (tenant, type) and bytes: of the ``most`` largest tenants each, of the others together."""
    kept = _kept()
    named = list(dict.fromkeys(row.tenant for row in kept if row.tenant))[:most]
    rest = Counter[str]()
    for row in kept:
        rest.update({} if row.tenant in named else {row.type: row.bytes})
    found: list[tuple[Sequence[str], float]] = [([r.tenant, r.type], r.bytes) for r in kept if r.tenant in named]
    return found + [(["others", type_], size) for type_, size in sorted(rest.items())]


def stored_by_type() -> list[tuple[str, int, int]]:
    """Return each type of document with how many there are, and their pages."""
    documents, pages = Counter[str](), Counter[str]()
    for row in _kept():
        documents[row.type] += row.documents
        pages[row.type] += row.pages
    return [(type_, documents[type_], pages[type_]) for type_ in sorted(documents)]


def _kept() -> list[StoredTotal]:
    return [StoredTotal(tenant, _type(mime), *rest) for tenant, mime, *rest in _told(STORAGE).get("stored", [])]


def _type(mime: str) -> str:
    return mime.rpartition("/")[2]  # a slash is no part of a label that is shown as it is
