"""What Prometheus is told: every figure with its name, its kind and what it means. Ids and codes, no tenant's text."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import groupby
from operator import attrgetter

from django.conf import settings
from django.db import connection
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from jobs.cluster import registry
from metrics import connector_gauges, gauges, queries, statute_gauges, usage
from metrics.histograms import BOUNDS
from metrics.models import MetricRollup, Resolution
from metrics.queries import PERIODS

_SAFE = re.compile(r"[A-Za-z0-9_@.:+-]{0,80}")

# measure: name, kind, labels, help. A counter of "total" sums seconds or pages up, one of "count" how often.
ROLLUP_METRICS = {
    "stage": ("stage_seconds", "histogram", ("pipeline", "stage"), "Time that a worker needed for a stage, of tries that completed it."),
    "queue": ("queue_seconds", "histogram", ("pipeline", "stage"), "Time between a job becoming due and a worker claiming it."),
    "parked": ("parked_seconds", "total", ("pipeline", "stage"), "Time that jobs waited for a moment: a vendor, an upload, a pause before a retry."),
    "tried": ("work_seconds", "total", ("pipeline",), "Time that workers spent on jobs, in tries of any outcome."),
    "retried": ("retries", "count", ("stage", "code"), "Tries that failed and are made again, by stage and error code."),
    "failed": ("failures", "count", ("stage", "code"), "Jobs that went to the dead letters, by stage and error code."),
    "ended": ("jobs_ended", "count", ("pipeline", "outcome"), "Jobs that ended: done, failed, or let_go (cancelled or superseded)."),
    "reprocessed": ("jobs_reprocessed", "count", ("pipeline",), "Ended jobs that had needed a retry."),
    "requeued": ("jobs_requeued", "count", ("stage",), "Dead letters that a person sent back to work."),
    "declared": ("jobs_declared", "count", ("pipeline",), "Jobs that were begun."),
    "pages": ("pages", "total", (), "Pages of documents that were accepted."),
    "passages": ("passages", "total", (), "Passages that were stored."),
    "vectors": ("vectors", "total", (), "Vectors that were stored."),
    "time_to": ("time_to_seconds", "histogram", ("milestone", "pipeline"), "Time from a job's beginning to its parse, chunk, first_embedding and complete (002 section 11)."),
    "probe": ("ann_probe_seconds", "histogram", ("outcome",), "Time of the one search through the index at the end of each document's way."),
    "vendor": ("vendor_call_seconds", "histogram", ("vendor", "operation", "outcome"), "Time of calls to vendors; outcome is ok, an HTTP status or why there was no answer."),
    "sync": ("sync_seconds", "histogram", ("provider", "kind", "outcome"), "Time from a sync's beginning to its end; outcome is completed or the code it failed with."),
    "records": ("sync_records", "total", ("provider", "outcome"), "Records of syncs that ended: written, unchanged, embedded, deleted, failed."),
}  # fmt: skip


COUNTED = {"laws": "Laws", "versions": "Versions of laws"}


class Collector:
    """Reads everything anew at each scrape; the figures cover all workers, whichever process answers."""

    def collect(self) -> Iterator[Metric]:
        yield from _figures()
        yield from _standing()
        yield from _live()
        yield from _connectors()
        yield from _statutes()
        yield from _vendors()
        yield from _money()
        yield from _storage()


def safe_label(label: str) -> str:
    """Return a label as it is, if it looks like a code: what was not made by us is not repeated."""
    return label if _SAFE.fullmatch(label) else "other"


def gauge(name: str, text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float | Decimal]]) -> Metric:
    family = GaugeMetricFamily(f"accessa_{name}", text, labels=labels)
    for values, number in rows:
        family.add_metric([safe_label(value) for value in values], float(number))
    return family


def _figures() -> Iterator[Metric]:
    rows = MetricRollup.objects.filter(span=Resolution.EVER, measure__in=ROLLUP_METRICS).order_by("measure", "labels")
    found = {measure: list(group) for measure, group in groupby(rows, key=attrgetter("measure"))}
    for measure, (name, kind, labels, text) in ROLLUP_METRICS.items():
        family = HistogramMetricFamily if kind == "histogram" else CounterMetricFamily
        yield _filled(family(f"accessa_{name}", text, labels=labels), found.get(measure, []), kind)


def _filled(
    family: HistogramMetricFamily | CounterMetricFamily, rows: Iterable[MetricRollup], kind: str
) -> HistogramMetricFamily | CounterMetricFamily:
    for row in rows:
        values = [safe_label(label) for label in row.labels]
        if isinstance(family, HistogramMetricFamily):
            family.add_metric(values, buckets=_cumulated(row.histogram), sum_value=row.total)
        else:
            family.add_metric(values, row.count if kind == "count" else row.total)
    return family


def _cumulated(histogram: Sequence[int]) -> list[tuple[str, float]]:
    bounds, sum_, cumulated = [*map(str, BOUNDS), "+Inf"], 0, []
    for bound, count in zip(bounds, histogram, strict=False):
        sum_ += count
        cumulated.append((bound, float(sum_)))
    return cumulated


def _standing() -> Iterator[Metric]:
    ages = queries.measurements()
    told = ages["standing"].told if "standing" in ages else {}
    status, kinds, dead = told.get("status", {}), told.get("standing", {}), told.get("dead", [])
    yield gauge("jobs", "Jobs by status, as last measured.", ["status"], [([name], n) for name, n in status.items()])
    text = "Jobs by why they do not move: queued, starved, waiting, retrying, working, dead; as last measured."
    yield gauge("jobs_standing", text, ["kind"], [([name], n) for name, n in kinds.items()])
    text = "Dead letters by stage and error code, as last measured."
    yield gauge("dead_letters", text, ["stage", "code"], [([d["stage"], d["code"]], d["jobs"]) for d in dead])
    oldest = max((float(each["oldest"]) for each in dead), default=0.0)
    yield gauge("dead_letters_oldest_seconds", "Age of the oldest dead letter, as last measured.", [], [([], oldest)])
    text = "Age of what each kind of measurement says; of moves, up to when the journal has been counted."
    yield gauge("measurement_age_seconds", text, ["measurement"], [([name], age.seconds) for name, age in ages.items()])
    text = "Time that the last measurement took."
    yield gauge("measurement_seconds", text, ["measurement"], [([name], age.took) for name, age in ages.items()])


def _live() -> Iterator[Metric]:
    workers, busy = registry.count_workers(), gauges.jobs_working()
    utilization = min(busy / workers, 1.0) if workers else 0.0
    text = "For how long the work that a free worker could take has been due, in the worst user's case; now."
    yield gauge("queue_lag_seconds", text, [], [([], gauges.queue_lag())])
    text = "Age of the oldest job that has not ended; now."
    yield gauge("longest_waiting_seconds", text, [], [([], gauges.longest_waiting())])
    yield gauge("workers", "Workers of all clusters that are alive; now.", [], [([], workers)])
    yield gauge("clusters", "Clusters that are alive; now.", [], [([], registry.live_clusters().count())])
    yield gauge("workers_busy", "Jobs that a worker holds; now.", [], [([], busy)])
    yield gauge("worker_utilization", "Share of the workers that hold a job, 0 to 1; now.", [], [([], utilization)])
    probes = queries.distributions("probe", PERIODS["24h"], queries.database_time(), label=None).get(
        "", queries.EMPTY_DISTRIBUTION
    )
    text = "The time that 95 % of the last day's index probes did not exceed."
    yield gauge("ann_probe_p95_seconds", text, [], [([], probes.percentile(0.95) or 0.0)])


def _connectors() -> Iterator[Metric]:
    queue, ages = connector_gauges.connector_queue(), queries.measurements()
    told = ages["standing"].told.get("connectors", {}) if "standing" in ages else {}
    text = "Pages of syncs in the queue: visible to workers, or held (being worked at, or waiting for a provider); now."
    rows = [(["visible"], queue.visible), (["held"], queue.held)]
    yield gauge("ingestion_messages", text, ["state"], rows)
    text = "Age of the oldest page in the queue; now."
    yield gauge("ingestion_oldest_seconds", text, [], [([], queue.oldest)])
    text = "For how long the page that has waited the longest for a worker has been visible; now."
    yield gauge("ingestion_due_seconds", text, [], [([], queue.due)])
    text = "Pages that were given up, as last measured."
    yield gauge("ingestion_archived", text, [], [([], told.get("archived", 0))])
    text = "Tenants' connected systems by provider and status, as last measured."
    sources = [([provider, status], number) for provider, status, number in told.get("sources", [])]
    yield gauge("sources", text, ["provider", "status"], sources)


def _statutes() -> Iterator[Metric]:
    ages = queries.measurements()
    told = ages["standing"].told.get("statutes", {}) if "standing" in ages else {}
    text = "Consumers of the statutes' queue that are alive, by state; now."
    rows = [([state], number) for state, number in statute_gauges.statute_consumers().items()]
    yield gauge("statutes_consumers", text, ["state"], rows)
    text = "For how long no consumer has been heard; none where none is known."
    silence = statute_gauges.consumer_silence()
    yield gauge("statutes_consumer_silence_seconds", text, [], [] if silence is None else [([], silence)])
    text = (
        "Messages of each consumer since it began, each time that they were handed out: received, ended well, failed."
    )
    family = CounterMetricFamily("accessa_statutes_messages", text, labels=["consumer", "outcome"])
    for counted in statute_gauges.statute_messages():
        family.add_metric([safe_label(counted.consumer), counted.outcome], counted.messages)
    yield family
    text = "For how long the version has stood still that has moved least lately, of those on their way; now."
    yield gauge("statutes_still_seconds", text, [], [([], statute_gauges.statute_stall())])
    counts = [(name, [([status], number) for status, number in told.get(name, {}).items()]) for name in COUNTED]
    for name, rows in counts:
        yield gauge(f"statutes_{name}", f"{COUNTED[name]} by status, as last measured.", ["status"], rows)


def _vendors() -> Iterator[Metric]:
    breakers = usage.breaker_states()
    text = "Whether calls of a vendor are held back: 1 open, 0.5 while one call asks whether it is back, 0 closed."
    level = {"closed": 0.0, "half-open": 0.5, "open": 1.0}
    rows = [([b.vendor, b.part], level[b.state]) for b in breakers]
    yield gauge("vendor_breaker", text, ["vendor", "part"], rows)
    text = "Seconds for which a vendor asked to be left alone, by its reason."
    yield gauge("vendor_pause_seconds", text, ["vendor", "reason"], usage.vendor_pauses())


def _money() -> Iterator[Metric]:
    spent = usage.recent_spend(queries.database_time().date())
    labels = ["day", "vendor", "unit"]
    keys = [([s.day, s.vendor, s.unit], s) for s in spent]
    text = "Spent, unsettled calls included, in cents of a UTC day."
    yield gauge("spend_cents", text, labels, [(key, s.cents) for key, s in keys])
    text = "Of what was spent, in tries after a failed one."
    yield gauge("spend_retry_cents", text, labels, [(key, s.retry_cents) for key, s in keys])
    text = "Of what was spent, in calls whose bill is not known: they may have been charged."
    yield gauge("spend_unsettled_cents", text, labels, [(key, s.unsettled_cents) for key, s in keys])
    yield gauge("bought", "Pages or tokens bought.", labels, [(key, s.quantity) for key, s in keys])
    yield gauge("vendor_purchases", "Calls that cost money.", labels, [(key, s.calls) for key, s in keys])


def _storage() -> Iterator[Metric]:
    text = "Bytes of stored documents: the largest twenty tenants by id, all others together."
    yield gauge("stored_bytes", text, ["tenant", "type"], usage.stored_by_tenant(20))
    by_type = usage.stored_by_type()
    yield gauge("stored_documents", "Stored documents by type.", ["type"], [([t], n) for t, n, _ in by_type])
    yield gauge("stored_pages", "Pages of stored documents by type.", ["type"], [([t], n) for t, _, n in by_type])
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        (size,) = cursor.fetchone()
    yield gauge("database_bytes", "Size of the database.", [], [([], size)])
    text = "Free share of the disk of local storage, as the web process that answers sees it."
    yield gauge("disk_free_ratio", text, [], [([], _free())] if settings.STORAGE == "local" else [])


def _free() -> float:
    root = settings.STORAGE_ROOT
    disk = shutil.disk_usage(next(path for path in (root, *root.parents) if path.exists()))
    return disk.free / disk.total
