"""The admin's first page: what the product does, from the figures. No table of jobs or events is counted here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from console import dashboard_tables
from console.charts import Chart, Series, duration, money
from console.time_series import Moment
from jobs.cluster import registry
from jobs.states import STATUSES, Stage
from metrics import connector_gauges, gauges, queries, statute_gauges, usage
from metrics.queries import PERIODS

PERMISSION = "metrics.view_metricrollup"
LONG_DUE = 600.0  # seconds that a page of a sync may wait for a worker
KIND_NAMES = {
    "queued": ("Queued", "due, a worker will take it"),
    "starved": ("Starved", "due, but its tenant has all workers that one may have"),
    "waiting": ("Waiting", "for a vendor, an upload or a time"),
    "retrying": ("Retrying", "pauses before the next try"),
    "working": ("Working", "a worker holds it"),
    "dead": ("Dead", "given up or cancelled"),
}


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    value: str
    about: str = ""
    is_bad: bool = False


def context(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Add the dashboard for those who may see figures; all others get the plain index."""
    if not request.user.has_perm(PERMISSION):
        return context
    period = PERIODS.get(request.GET.get("period", ""), PERIODS["24h"])
    moment, ages = Moment(period, queries.database_time()), queries.measurements()
    told = ages["standing"].told if "standing" in ages else {}
    since = queries.oldest_rollup()
    dashboard = {
        "period": period,
        "periods": list(PERIODS.values()),
        "measured": bool(ages),
        "since": since,
        "ages": {name: duration(max(age.seconds, 0.0)) for name, age in ages.items()},
        "is_stale": bool(ages) and max(ages[n].seconds for n in ("moves", "standing") if n in ages) > 300,
        "facts": _facts(told),
        "charts": _charts(moment) if ages else [],
        "tables": dashboard_tables.tables(moment, told) if ages else [],
    }
    return {**context, "title": "Dashboard", "dashboard": dashboard}


def _facts(told: Mapping[str, Any]) -> list[Fact]:
    workers, busy = registry.count_workers(), gauges.jobs_working()
    lag, longest = gauges.queue_lag(), gauges.longest_waiting()
    pages = connector_gauges.connector_queue()
    live = [
        Fact("Workers alive", f"{workers:,}", is_bad=not workers),
        Fact("Workers busy", f"{busy:,} ({busy / workers:.0%})" if workers else f"{busy:,}"),
        Fact("Queue lag", duration(lag), is_bad=lag > 60),
        Fact("Longest waiting", duration(longest)),
        Fact("Pages of syncs", f"{pages.visible + pages.held:,}", "in the connectors' queue", pages.due > LONG_DUE),
    ]
    if settings.SQS_QUEUE_URL:
        consumers = statute_gauges.live_statute_consumers()
        live.append(Fact("Consumers alive", f"{consumers:,}", "of the statutes' queue", is_bad=not consumers))
    kinds = told.get("standing", {})
    measured = [Fact(name, f"{kinds[kind]:,}", about) for kind, (name, about) in KIND_NAMES.items() if kind in kinds]
    return live + measured


def _charts(moment: Moment) -> list[Chart]:
    return [_statuses(moment), _throughput(moment), _lag(moment), _kinds(moment), _stages(moment), _retries(moment),
            _spend_by_day(moment)]  # fmt: skip


def _statuses(moment: Moment) -> Chart:
    found = queries.series("status", moment.period, moment.now)
    shown = [name for name in STATUSES if name != "complete" and any(p.total for p in found.get(name, {}).values())]
    lines = [moment.looks(name.replace("_", " "), found[name], lambda point: point.mean) for name in shown]
    about = "The mean of each interval, of jobs that are not complete."
    return Chart("status", "Jobs by status", moment.labels, lines, about=about)


def _throughput(moment: Moment) -> Chart:
    ended = queries.series("ended", moment.period, moment.now, label=2)
    names = {"done": "done", "failed": "failed", "let_go": "cancelled or superseded"}
    lines = [moment.line(name, ended.get(outcome, {}), lambda point: point.count) for outcome, name in names.items()]
    return Chart("throughput", "Jobs ended", moment.labels, lines, kind="stacked")


def _lag(moment: Moment) -> Chart:
    names = {"lag": "queue lag", "longest": "longest waiting"}
    lines = [
        moment.looks(name, queries.series(measure, moment.period, moment.now).get("", {}), lambda point: point.peak)
        for measure, name in names.items()
    ]
    about = "The highest of each interval: how long due work waited for a worker, and the age of the oldest open job."
    return Chart("lag", "Queue lag and longest waiting", moment.labels, lines, shown=duration, about=about)


def _kinds(moment: Moment) -> Chart:
    found = queries.series("standing", moment.period, moment.now)
    lines = [moment.looks(kind, found.get(kind, {}), lambda point: point.mean) for kind in KIND_NAMES]
    return Chart("kinds", "Why jobs do not move", moment.labels, lines, about="The mean of each interval.")


def _stages(moment: Moment) -> Chart:
    spreads = queries.distributions("stage", moment.period, moment.now, label=2)
    stages = [stage.value for stage in Stage if stage.value in spreads]
    lines = [
        Series(name, [spreads[stage].percentile(share) or 0.0 for stage in stages])
        for name, share in (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))
    ]
    about = "Time that a worker needed, of tries that completed the stage."
    labels = [stage.replace("_", " ") for stage in stages]
    return Chart("stages", "Time per stage", labels, lines, kind="bars", shown=duration, about=about)


def _retries(moment: Moment) -> Chart:
    retried = queries.series("retried", moment.period, moment.now)
    lines = [
        moment.line(stage.replace("_", " "), points, lambda point: point.count)
        for stage, points in sorted(retried.items())
    ]
    return Chart("retries", "Retries by stage", moment.labels, lines, kind="stacked")


def _spend_by_day(moment: Moment) -> Chart:
    cents: dict[tuple[str, str], float] = {}
    for row in usage.spend_since(moment.first_day):
        cents[row.day, row.vendor] = cents.get((row.day, row.vendor), 0.0) + row.cents
    days, vendors = sorted({day for day, _ in cents}), sorted({vendor for _, vendor in cents})
    lines = [Series(vendor, [cents.get((day, vendor), 0.0) for day in days]) for vendor in vendors]
    labels = [date.fromisoformat(day).strftime("%d %b") for day in days]
    return Chart("spend", "Spend by day and vendor", labels, lines, kind="stacked", shown=money, about="UTC days.")
