"""Dashboard tables: waits, errors, dead letters, vendors, connectors, spend, storage, clusters."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.template.defaultfilters import filesizeformat
from django.urls import reverse

from accounts.admin_cells import find_names, named_cell, time_cell
from accounts.number_formats import format_duration, format_money
from console.charts import ChartPeriod
from jobs.choices import Stage
from jobs.cluster import live_clusters
from metrics import event_counts, gauges, rollup_queries, spend_and_storage
from metrics.distributions import EMPTY_DISTRIBUTION, Distribution
from metrics.rollup_queries import Point
from metrics.spend_and_storage import SpendTotal

MOST_ROWS = 10
UUID_CHARS = 36


@dataclass(frozen=True, slots=True)
class Table:
    slug: str
    title: str
    heads: list[str]
    rows: list[list[Any]]
    about: str = ""
    empty: str = "Nothing in this period."
    is_open: bool = False  # the others are opened by a click: the dashboard fits two screens


@dataclass(frozen=True, slots=True)
class Link:
    text: str
    url: str


def tables(period: ChartPeriod, measured: Mapping[str, Any], user: Any) -> list[Table]:
    return [
        dead_letters(measured.get("dead", [])),
        errors(period),
        milestones(period),
        stage_waits(period),
        work_done(period),
        vendors(period),
        connectors(period, measured.get("connectors", {}).get("sources", [])),
        spend("vendor", spend_and_storage.spend_by_vendor(period.first_day)),
        spend("tenant", spend_and_storage.spend_by_tenant(period.period), user),
        storage(user),
        clusters(),
    ]


def percentiles(times: Distribution) -> list[str]:
    seconds = [times.percentile(share) for share in (0.50, 0.95, 0.99)]
    return ["" if value is None else format_duration(value) for value in seconds]


def milestones(period: ChartPeriod) -> Table:
    times = rollup_queries.distributions("time_to", period.period, period.now)
    names = [name for name in ("parse", "chunk", "first_embedding", "complete") if name in times]
    rows = [[name.replace("_", " "), f"{times[name].count:,}", *percentiles(times[name])] for name in names]
    about = "From the declaration of a file; jobs that a person has retried are left out."
    return Table("milestones", "Time to", ["Until", "Jobs", "p50", "p95", "p99"], rows, about)


def stage_waits(period: ChartPeriod) -> Table:
    queued = rollup_queries.distributions("queue", period.period, period.now, label=2)
    parked = rollup_queries.distributions("parked", period.period, period.now, label=2)
    rows = [
        [
            stage.value.replace("_", " "),
            *percentiles(queued.get(stage.value, EMPTY_DISTRIBUTION)),
            *percentiles(parked.get(stage.value, EMPTY_DISTRIBUTION)),
        ]
        for stage in Stage
        if stage.value in queued or stage.value in parked
    ]
    heads = ["Stage", "For a worker: p50", "p95", "p99", "Parked: p50", "p95", "p99"]
    return Table("waits", "Waiting per stage", heads, rows, "For a worker while due; parked for a vendor or a pause.")


def errors(period: ChartPeriod) -> Table:
    failed = {key: point.count for key, point in rollup_queries.totals("failed", period.period, period.now).items()}
    retried = {key: point.count for key, point in rollup_queries.totals("retried", period.period, period.now).items()}
    keys = sorted(failed.keys() | retried.keys(), key=lambda key: (-failed.get(key, 0), key))
    rows = [
        [job_list_link(*key), key[0].replace("_", " "), f"{failed.get(key, 0):,}", f"{retried.get(key, 0):,}"]
        for key in keys[: 2 * MOST_ROWS]
    ]
    return Table("errors", "Errors by code", ["Code", "Stage", "Failed", "Retried"], rows, is_open=True)


def job_list_link(stage: str, code: str) -> Link:
    query = urlencode({"error_code": code, "stage": stage})
    return Link(code or "unknown", f"{reverse('admin:jobs_uploadjob_changelist')}?{query}")


def dead_letters(groups: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        [
            job_list_link(group["stage"], group["code"]),
            group["stage"].replace("_", " "),
            f"{group['jobs']:,}",
            format_duration(group["oldest"]),
        ]
        for group in groups[:MOST_ROWS]
    ]
    heads = ["Code", "Stage", "Jobs", "Oldest"]
    return Table("dead", "Dead letters now", heads, rows, empty="No job has failed for good.", is_open=True)


def work_done(period: ChartPeriod) -> Table:
    def points(measure: str) -> list[Point]:
        return list(rollup_queries.totals(measure, period.period, period.now).values())

    ended, retried = (sum(point.count for point in points(measure)) for measure in ("ended", "reprocessed"))
    probes = rollup_queries.distributions("probe", period.period, period.now, label=None).get("", EMPTY_DISTRIBUTION)
    rows = [
        ["Jobs ended", f"{ended:,}"],
        ["Of them with retries", f"{retried:,} ({retried / ended:.1%})" if ended else "0"],
        *(
            [name, f"{sum(point.total for point in points(measure)):,.0f}"]
            for name, measure in
            (("Pages accepted", "pages"), ("Passages stored", "passages"), ("Vectors stored", "vectors"))
        ),
        ["Index probe p95", percentiles(probes)[1] or "no probe"],
    ]  # fmt: skip
    return Table("work", "Work done", ["What", "How much"], rows)


def vendors(period: ChartPeriod) -> Table:
    states: dict[str, set[str]] = {}
    for breaker in gauges.breaker_states():
        states.setdefault(breaker.vendor, set()).add(breaker.state)
    times = rollup_queries.distributions("vendor", period.period, period.now)
    failures: dict[str, int] = {}
    for (vendor, _, outcome), point in rollup_queries.totals("vendor", period.period, period.now).items():
        failures[vendor] = failures.get(vendor, 0) + (point.count if outcome != "ok" else 0)
    rows = [
        [
            vendor,
            ", ".join(sorted(states.get(vendor, {"closed"}))),
            f"{times.get(vendor, EMPTY_DISTRIBUTION).count:,}",
            f"{failures.get(vendor, 0):,}",
            *percentiles(times.get(vendor, EMPTY_DISTRIBUTION)),
        ]
        for vendor in sorted(times.keys() | states.keys())
    ]
    heads = ["Vendor", "Breaker", "Calls", "Failed", "p50", "p95", "p99"]
    return Table("vendors", "Vendors", heads, rows, "Breakers as they are now.", empty="No vendor has been called.")


def connectors(period: ChartPeriod, counted: Sequence[tuple[str, str, int]]) -> Table:
    ended = rollup_queries.totals(event_counts.SYNC, period.period, period.now)
    records = rollup_queries.totals(event_counts.RECORDS, period.period, period.now)
    sources = {(provider, status): count for provider, status, count in counted}
    rows = []
    for provider in sorted({key[0] for key in (*sources, *ended)}):
        syncs = [(outcome, point.count) for (name, _, outcome), point in ended.items() if name == provider]
        rows.append([
            provider,
            *(f"{sources.get((provider, status), 0):,}" for status in ("active", "error")),
            f"{sum(count for _, count in syncs):,}",
            f"{sum(count for outcome, count in syncs if outcome != 'completed'):,}",
            *(f"{records[provider, kind].total if (provider, kind) in records else 0:,.0f}"
              for kind in ("written", "embedded", "failed")),
        ])  # fmt: skip
    heads = ["Provider", "Active", "To reconnect", "Syncs", "Failed", "Records written", "Embedded", "Not read"]
    return Table("connectors", "Connected systems", heads, rows, "Sources as they are now.", "Nothing is connected.")


def tenant_cells(user: Any, names: Iterable[str]) -> dict[str, str]:
    """Return the cell of each tenant by the id that is measured; other words, such as "others", are left out."""
    ids = {name: UUID(name) for name in names if len(name) == UUID_CHARS}
    emails = find_names(user, tenant=ids.values())
    return {name: named_cell("tenant", pk, emails) for name, pk in ids.items()}


def spend(by: str, totals: Sequence[SpendTotal], user: Any = None) -> Table:
    cells = tenant_cells(user, [total.name for total in totals[:MOST_ROWS]]) if user else {}
    rows = [
        [
            cells.get(total.name, total.name),
            f"{total.calls:,}",
            *(format_money(cents) for cents in (total.cents, total.retry_cents, total.unsettled_cents)),
        ]
        for total in totals[:MOST_ROWS]
    ]
    heads = [by.capitalize(), "Calls", "Spent", "In retries", "Bill not known"]
    return Table(f"spend-{by}", f"Spend by {by}", heads, rows, "Of whole UTC days.")


def storage(user: Any) -> Table:
    stored = spend_and_storage.stored_by_tenant(MOST_ROWS)
    cells = tenant_cells(user, [tenant for (tenant, _), _ in stored])
    rows = [[cells.get(tenant, tenant), mime, filesizeformat(count)] for (tenant, mime), count in stored]
    empty = "When it was last counted, nothing was stored."
    return Table("storage", "Storage by tenant and type", ["Tenant", "Type", "Size"], rows, empty=empty)


def clusters() -> Table:
    rows = [
        [cluster.name, f"{cluster.workers:,}", time_cell(cluster.started_at)]
        for cluster in live_clusters.live_clusters().order_by("name")
    ]
    empty = "No cluster of workers is alive: no job is worked on."
    return Table("clusters", "Clusters of workers now", ["Cluster", "Workers", "Since"], rows, empty=empty)
