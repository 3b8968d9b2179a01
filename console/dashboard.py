"""Admin dashboard: live facts and charts, from metric rollups. It does not count the tables of jobs or events."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from accounts.number_formats import format_duration, format_money
from console import dashboard_tables
from console.charts import Chart, ChartPeriod, Series
from jobs.choices import STATUSES, Stage
from jobs.cluster import live_clusters
from metrics import gauges, rollup_queries, spend_and_storage
from metrics.models import MeasurementRun
from metrics.rollup_queries import PERIODS

PERMISSION = "metrics.view_metricrollup"
LONG_DUE = 600.0  # seconds that a page of a sync may wait for a worker
STALE_SECONDS = 300
KINDS = {
    "queued": ("Queued", "due, a worker will take it"),
    "starved": ("Starved", "due, but its tenant has all workers that one may have"),
    "waiting": ("Waiting", "for a vendor, an upload or a time"),
    "retrying": ("Retrying", "pauses before the next attempt"),
    "working": ("Working", "a worker holds it"),
    "dead": ("Dead", "failed or cancelled"),
}


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    value: str
    about: str = ""
    is_bad: bool = False


def add_dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Add the dashboard to the context of the admin's index, for staff who may see metrics."""
    if not request.user.has_perm(PERMISSION):
        return context
    shown = PERIODS.get(request.GET.get("period", ""), PERIODS["24h"])
    period, runs = ChartPeriod(shown, rollup_queries.database_time()), MeasurementRun.objects.in_bulk()
    measured = runs["standing"].snapshot if "standing" in runs else {}
    dashboard = {
        "period": shown,
        "periods": list(PERIODS.values()),
        "measured": bool(runs),
        "since": rollup_queries.oldest_rollup(),
        "ages": {name: f"{format_duration(max(run.age(period.now), 0.0))} ago" for name, run in runs.items()},
        "is_stale": any(runs[name].age(period.now) > STALE_SECONDS for name in ("moves", "standing") if name in runs),
        "facts": current_facts(measured.get("standing", {})),
        "charts": charts(period) if runs else [],
        "tables": dashboard_tables.tables(period, measured, request.user) if runs else [],
    }
    return {**context, "title": "Dashboard", "dashboard": dashboard}


def current_facts(jobs: Mapping[str, int]) -> list[Fact]:
    workers, busy = live_clusters.count_workers(), gauges.jobs_working()
    lag, pages = gauges.queue_lag(), gauges.connector_queue()
    facts = [
        Fact("Workers alive", f"{workers:,}", is_bad=not workers),
        Fact("Workers busy", f"{busy:,} ({busy / workers:.0%})" if workers else f"{busy:,}"),
        Fact("Queue lag", format_duration(lag), is_bad=lag > 60),
        Fact("Longest waiting", format_duration(gauges.longest_waiting())),
        Fact("Pages of syncs", f"{pages.visible + pages.held:,}", "in the connectors' queue", pages.due > LONG_DUE),
    ]
    if settings.SQS_QUEUE_URL:
        consumers = sum(gauges.statute_consumers().values())
        facts.append(Fact("Consumers alive", f"{consumers:,}", "of the statutes' queue", is_bad=not consumers))
    return facts + [Fact(name, f"{jobs[kind]:,}", about) for kind, (name, about) in KINDS.items() if kind in jobs]


def charts(period: ChartPeriod) -> list[Chart]:
    return [
        jobs_by_status(period), jobs_ended(period), queue_lag(period), jobs_by_kind(period), stage_times(period),
        retries_by_stage(period), spend_by_day(period),
    ]  # fmt: skip


def jobs_by_status(period: ChartPeriod) -> Chart:
    points = rollup_queries.series("status", period.period, period.now)
    open_statuses = [name for name in STATUSES if name != "complete"]
    series = [
        period.samples(name.replace("_", " "), points[name], lambda point: point.mean)
        for name in open_statuses
        if any(point.total for point in points.get(name, {}).values())
    ]
    about = "The mean of each interval, of jobs that are not complete."
    return Chart("status", "Jobs by status", period.labels, series, about=about)


def jobs_ended(period: ChartPeriod) -> Chart:
    points = rollup_queries.series("ended", period.period, period.now, label=2)
    names = {"done": "done", "failed": "failed", "let_go": "cancelled or superseded"}
    series = [period.event_counts(name, points.get(outcome, {})) for outcome, name in names.items()]
    return Chart("throughput", "Jobs ended", period.labels, series, kind="stacked")


def queue_lag(period: ChartPeriod) -> Chart:
    series = [
        period.samples(
            name, rollup_queries.series(measure, period.period, period.now).get("", {}), lambda point: point.peak
        )
        for measure, name in (("lag", "queue lag"), ("longest", "longest waiting"))
    ]
    about = "The highest of each interval: how long due work waited for a worker, and the age of the oldest open job."
    return Chart(
        "lag", "Queue lag and longest waiting", period.labels, series, format_value=format_duration, unit="seconds",
        about=about,
    )  # fmt: skip


def jobs_by_kind(period: ChartPeriod) -> Chart:
    points = rollup_queries.series("standing", period.period, period.now)
    series = [period.samples(kind, points.get(kind, {}), lambda point: point.mean) for kind in KINDS]
    return Chart("kinds", "Why jobs do not move", period.labels, series, about="The mean of each interval.")


def stage_times(period: ChartPeriod) -> Chart:
    times = rollup_queries.distributions("stage", period.period, period.now, label=2)
    stages = [stage.value for stage in Stage if stage.value in times]
    series = [
        Series(name, [times[stage].percentile(share) or 0.0 for stage in stages])
        for name, share in (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))
    ]
    labels = [stage.replace("_", " ") for stage in stages]
    about = "Time that a worker needed, of attempts that completed the stage."
    return Chart(
        "stages", "Time per stage", labels, series, kind="bars", format_value=format_duration, unit="seconds",
        about=about,
    )  # fmt: skip


def retries_by_stage(period: ChartPeriod) -> Chart:
    points = sorted(rollup_queries.series("retried", period.period, period.now).items())
    series = [period.event_counts(stage.replace("_", " "), series) for stage, series in points]
    return Chart("retries", "Retries by stage", period.labels, series, kind="stacked")


def spend_by_day(period: ChartPeriod) -> Chart:
    dollars: dict[tuple[str, str], float] = {}
    for row in spend_and_storage.spend_since(period.first_day):
        dollars[row.day, row.vendor] = dollars.get((row.day, row.vendor), 0.0) + row.cents / 100
    days, vendors = sorted({day for day, _ in dollars}), sorted({vendor for _, vendor in dollars})
    series = [Series(vendor, [dollars.get((day, vendor), 0.0) for day in days]) for vendor in vendors]
    labels = [date.fromisoformat(day).strftime("%d %b") for day in days]
    return Chart(
        "spend", "Spend by day and vendor", labels, series, kind="stacked", unit="dollars", about="UTC days.",
        format_value=lambda dollars: format_money(dollars * 100),
    )  # fmt: skip
