"""The dashboard's tables: what is better read than seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from console.charts import duration, money, size
from console.time_series import Moment
from jobs.cluster import registry
from jobs.states import Stage
from metrics import connector_gauges, queries, usage
from metrics.queries import Distribution, Point
from metrics.usage import SpendTotal

MOST_ROWS = 10


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings; of a row each cell is a text, or a text with a link."""

    slug: str
    title: str
    heads: list[str]
    rows: list[list[Any]]
    about: str = ""
    empty: str = "Nothing in this period."


@dataclass(frozen=True, slots=True)
class Link:
    text: str
    url: str


def tables(moment: Moment, told: Mapping[str, Any]) -> list[Table]:
    return [
        _milestones(moment), _waits(moment), _errors(moment), _dead(told), _work(moment), _vendors(moment),
        _connectors(moment, told),
        _spend_by_vendor(moment), _spend_by_tenant(moment), _storage(), _clusters(),
    ]  # fmt: skip


def _times(spread: Distribution) -> list[str]:
    told = [spread.percentile(share) for share in (0.50, 0.95, 0.99)]
    return ["" if seconds is None else duration(seconds) for seconds in told]


def _milestones(moment: Moment) -> Table:
    found = queries.distributions("time_to", moment.period, moment.now)
    names = ("parse", "chunk", "first_embedding", "complete")
    rows = [[n.replace("_", " "), f"{found[n].count:,}", *_times(found[n])] for n in names if n in found]
    about = "From the declaration of a file; jobs that a person has retried are left out."
    return Table("milestones", "Time to", ["Until", "Jobs", "p50", "p95", "p99"], rows, about)


def _waits(moment: Moment) -> Table:
    queued = queries.distributions("queue", moment.period, moment.now, label=2)
    parked = queries.distributions("parked", moment.period, moment.now, label=2)
    rows = [
        [
            stage.value.replace("_", " "),
            *_times(queued.get(stage.value, queries.EMPTY_DISTRIBUTION)),
            *_times(parked.get(stage.value, queries.EMPTY_DISTRIBUTION)),
        ]
        for stage in Stage
        if stage.value in queued or stage.value in parked
    ]
    heads = ["Stage", "For a worker: p50", "p95", "p99", "Parked: p50", "p95", "p99"]
    return Table("waits", "Waiting per stage", heads, rows, "For a worker while due; parked for a vendor or a pause.")


def _errors(moment: Moment) -> Table:
    failed = queries.totals("failed", moment.period, moment.now)
    retried = queries.totals("retried", moment.period, moment.now)
    nothing = Point(0, 0.0, 0.0)
    keys = sorted(failed.keys() | retried.keys(), key=lambda key: (-failed.get(key, nothing).count, key))
    rows = [
        [_of_group(stage, code), stage.replace("_", " "), f"{failed.get((stage, code), nothing).count:,}",
         f"{retried.get((stage, code), nothing).count:,}"]
        for stage, code in keys[: 2 * MOST_ROWS]
    ]  # fmt: skip
    return Table("errors", "Errors by code", ["Code", "Stage", "Given up", "Retried"], rows)


def _of_group(stage: str, code: str) -> Link:
    where = urlencode({"error_code": code, "stage": stage})
    return Link(code or "unknown", f"{reverse('admin:jobs_uploadjob_changelist')}?{where}")


def _dead(told: Mapping[str, Any]) -> Table:
    rows = [
        [
            _of_group(each["stage"], each["code"]),
            each["stage"].replace("_", " "),
            f"{each['jobs']:,}",
            duration(each["oldest"]),
        ]
        for each in told.get("dead", [])[:MOST_ROWS]
    ]
    return Table("dead", "Dead letters now", ["Code", "Stage", "Jobs", "Oldest"], rows, empty="None.")


def _work(moment: Moment) -> Table:
    def amount(measure: str) -> str:
        return f"{sum(point.total for point in queries.totals(measure, moment.period, moment.now).values()):,.0f}"

    ended = sum(point.count for point in queries.totals("ended", moment.period, moment.now).values())
    again = sum(point.count for point in queries.totals("reprocessed", moment.period, moment.now).values())
    rows = [
        ["Jobs ended", f"{ended:,}"],
        ["Of them with retries", f"{again:,} ({again / ended:.1%})" if ended else "0"],
        *([name, amount(measure)] for name, measure in
          (("Pages accepted", "pages"), ("Passages stored", "passages"), ("Vectors stored", "vectors"))),
    ]  # fmt: skip
    probes = queries.distributions("probe", moment.period, moment.now, label=None).get("", queries.EMPTY_DISTRIBUTION)
    rows.append(["Index probe p95", _times(probes)[1] or "no probe"])
    return Table("work", "Work done", ["What", "How much"], rows)


def _vendors(moment: Moment) -> Table:
    states = {(b.vendor, b.part): b.state for b in usage.breaker_states()}
    calls = queries.distributions("vendor", moment.period, moment.now)
    outcomes = queries.totals("vendor", moment.period, moment.now)
    rows = []
    for vendor in sorted({*calls, *(vendor for vendor, _ in states)}):
        bad = sum(point.count for (name, _, outcome), point in outcomes.items() if name == vendor and outcome != "ok")
        spread = calls.get(vendor, queries.EMPTY_DISTRIBUTION)
        said = sorted({state for (name, _), state in states.items() if name == vendor}) or ["closed"]
        rows.append([vendor, ", ".join(said), f"{spread.count:,}", f"{bad:,}", *_times(spread)])
    heads = ["Vendor", "Breaker", "Calls", "Not well", "p50", "p95", "p99"]
    return Table("vendors", "Vendors", heads, rows, "Breakers as they are now.", empty="No vendor has been called.")


def _connectors(moment: Moment, told: Mapping[str, Any]) -> Table:
    """Sources now, and the syncs and records of the period, by provider."""
    ended = queries.totals(connector_gauges.SYNC, moment.period, moment.now)
    records = queries.totals(connector_gauges.RECORDS, moment.period, moment.now)
    sources = {(provider, status): count for provider, status, count in told.get("connectors", {}).get("sources", [])}
    rows = []
    for provider in sorted({*(key[0] for key in (*sources, *ended))}):
        syncs = [(outcome, point.count) for (of, _, outcome), point in ended.items() if of == provider]
        rows.append([
            provider,
            *(f"{sources.get((provider, status), 0):,}" for status in ("active", "error")),
            f"{sum(count for _, count in syncs):,}",
            f"{sum(count for outcome, count in syncs if outcome != 'completed'):,}",
            *(f"{records[provider, what].total if (provider, what) in records else 0:,.0f}"
              for what in ("written", "embedded", "failed")),
        ])  # fmt: skip
    heads = ["Provider", "Active", "To reconnect", "Syncs", "Failed", "Records written", "Embedded", "Not read"]
    return Table("connectors", "Connected systems", heads, rows, "Sources as they are now.", "Nothing is connected.")


def _spend_by_vendor(moment: Moment) -> Table:
    return _spend("vendor", "Spend by vendor", usage.spend_by_vendor(moment.first_day))


def _spend_by_tenant(moment: Moment) -> Table:
    return _spend("tenant", "Spend by tenant", usage.spend_by_tenant(moment.period))


def _spend(name: str, title: str, found: Sequence[SpendTotal]) -> Table:
    rows = [
        [each.name, f"{each.calls:,}", money(each.cents), money(each.retry_cents), money(each.unsettled_cents)]
        for each in found[:MOST_ROWS]
    ]
    heads = [name.capitalize(), "Calls", "Spent", "In retries", "Bill not known"]
    return Table(f"spend-{name}", title, heads, rows, "Of whole UTC days.")


def _storage() -> Table:
    rows = [[*labels, size(count)] for labels, count in usage.stored_by_tenant(MOST_ROWS)]
    return Table(
        "storage",
        "Storage by tenant and type",
        ["Tenant", "Type", "Size"],
        rows,
        empty="When it was last counted, nothing was stored.",
    )


def _clusters() -> Table:
    rows = [
        [cluster.name, f"{cluster.workers:,}", cluster.started_at.strftime("%Y-%m-%d %H:%M UTC")]
        for cluster in registry.live_clusters().order_by("name")
    ]
    empty = "No cluster of workers is alive: nothing is worked on."
    return Table("clusters", "Clusters of workers now", ["Cluster", "Workers", "Since"], rows, empty=empty)
