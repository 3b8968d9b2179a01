"""Prometheus metrics: name, type, labels and help of each. Labels are ids and codes, never a tenant's text."""

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import accumulate, groupby
from operator import attrgetter
from typing import Any

from django.conf import settings
from django.db import connection
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from accounts import read_replica
from embeddings.search_engine.entries import load_engine
from jobs.cluster import live_clusters
from metrics import distributions, gauges, rollup_queries, spend_and_storage
from metrics.distributions import BOUNDS
from metrics.models import MeasurementRun, MetricRollup, Resolution
from metrics.rollup_queries import PERIODS
from outbox import search_feed

_SAFE = re.compile(r"[A-Za-z0-9_@.:+-]{0,80}")

# rollup: name, kind, labels, help. A counter of "total" sums up seconds or pages, one of "count" the events.
ROLLUP_METRICS = {
    "stage": ("stage_seconds", "histogram", ("pipeline", "stage"), "Time that a worker needed for a stage, of attempts that completed it."),
    "queue": ("queue_seconds", "histogram", ("pipeline", "stage"), "Time between a job becoming due and a worker claiming it."),
    "parked": ("parked_seconds", "total", ("pipeline", "stage"), "Time that jobs were parked: for a vendor, an upload, a pause before a retry."),
    "tried": ("work_seconds", "total", ("pipeline",), "Time that workers spent on jobs, in attempts of any outcome."),
    "retried": ("retries", "count", ("stage", "code"), "Failed attempts that are retried, by stage and error code."),
    "failed": ("failures", "count", ("stage", "code"), "Jobs that became dead letters, by stage and error code."),
    "ended": ("jobs_ended", "count", ("pipeline", "outcome"), "Jobs that ended: done, failed, or let_go (cancelled or superseded)."),
    "reprocessed": ("jobs_reprocessed", "count", ("pipeline",), "Jobs that ended after a retry."),
    "requeued": ("jobs_requeued", "count", ("stage",), "Dead letters that staff requeued."),
    "declared": ("jobs_declared", "count", ("pipeline",), "Jobs that were started."),
    "pages": ("pages", "total", (), "Pages of documents that were accepted."),
    "passages": ("passages", "total", (), "Passages that were stored."),
    "vectors": ("vectors", "total", (), "Vectors that were stored."),
    "time_to": ("time_to_seconds", "histogram", ("milestone", "pipeline"), "Time from a job's start to its parse, chunk, first_embedding and complete (002 section 11)."),
    "probe": ("ann_probe_seconds", "histogram", ("outcome",), "Time of the one search through the index at the end of each document's pipeline."),
    "vendor": ("vendor_call_seconds", "histogram", ("vendor", "operation", "outcome"), "Time of calls to vendors; outcome is ok, an HTTP status or the code of the failure."),
    "sync": ("sync_seconds", "histogram", ("provider", "kind", "outcome"), "Time from a sync's start to its end; outcome is completed or its error code."),
    "records": ("sync_records", "total", ("provider", "outcome"), "Records of syncs that ended: written, unchanged, embedded, deleted, failed."),
}  # fmt: skip

Rows = Iterable[tuple[Sequence[str], float | Decimal]]


class Collector:
    """Reads everything at each scrape; the metrics cover all workers, whichever process answers."""

    def collect(self) -> Iterator[Metric]:
        runs, now = MeasurementRun.objects.in_bulk(), rollup_queries.database_time()
        snapshot = runs["standing"].snapshot if "standing" in runs else {}
        yield from _rollups()
        yield from _measured_jobs(runs, now, snapshot)
        yield from _live_jobs(now)
        yield from _connectors(snapshot.get("connectors", {}))
        yield from _statutes(snapshot.get("statutes", {}))
        yield from _vendors(now)
        yield from _storage()
        yield from _search_engine()


def safe_label(label: str) -> str:
    """Return a label if it looks like a code: free text may be a tenant's."""
    return label if _SAFE.fullmatch(label) else "other"


def gauge(name: str, text: str, labels: Sequence[str], rows: Rows) -> Metric:
    family = GaugeMetricFamily(f"accessa_{name}", text, labels=labels)
    for values, number in rows:
        family.add_metric([safe_label(label) for label in values], float(number))
    return family


def _rollups() -> Iterator[Metric]:
    rows = MetricRollup.objects.filter(resolution=Resolution.EVER, metric__in=ROLLUP_METRICS)
    by_metric = {
        metric: list(group) for metric, group in groupby(rows.order_by("metric", "labels"), key=attrgetter("metric"))
    }
    for metric, (name, kind, label_names, text) in ROLLUP_METRICS.items():
        family_type = HistogramMetricFamily if kind == "histogram" else CounterMetricFamily
        family = family_type(f"accessa_{name}", text, labels=label_names)
        for row in by_metric.get(metric, []):
            labels = [safe_label(label) for label in row.labels]
            if isinstance(family, HistogramMetricFamily):
                bounds, cumulated = [*map(str, BOUNDS), "+Inf"], map(float, accumulate(row.histogram))
                buckets = list(zip(bounds, cumulated, strict=False))
                family.add_metric(labels, buckets=buckets, sum_value=row.total)
            else:
                family.add_metric(labels, row.count if kind == "count" else row.total)
        yield family


def _measured_jobs(runs: Mapping[str, MeasurementRun], now: datetime, snapshot: Mapping[str, Any]) -> Iterator[Metric]:
    dead = snapshot.get("dead", [])
    yield gauge("jobs", "Jobs by status, as last measured.", ["status"], _by_label(snapshot.get("status", {})))
    text = "Jobs by why they do not move: queued, starved, waiting, retrying, working, dead; as last measured."
    yield gauge("jobs_standing", text, ["kind"], _by_label(snapshot.get("standing", {})))
    text = "Dead letters by stage and error code, as last measured."
    yield gauge("dead_letters", text, ["stage", "code"], [([d["stage"], d["code"]], d["jobs"]) for d in dead])
    oldest = max((float(group["oldest"]) for group in dead), default=0.0)
    yield gauge("dead_letters_oldest_seconds", "Age of the oldest dead letter, as last measured.", [], [([], oldest)])
    text = "Passages that no vector index covers, of the large tenant with the most of them; as last measured."
    yield gauge("unindexed_passages", text, [], [([], snapshot.get("unindexed", 0))])
    text = "Passages whose sentence vectors are not made yet; as last measured."
    yield gauge("passages_without_sentence_vectors", text, [], [([], snapshot.get("without_sentences", 0))])
    text = "Age of each kind of measurement; of moves, the time up to which events have been counted."
    ages = {name: run.age(now) for name, run in runs.items()}
    yield gauge("measurement_age_seconds", text, ["measurement"], _by_label(ages))
    durations = {name: run.seconds for name, run in runs.items()}
    yield gauge("measurement_seconds", "Time that the last measurement took.", ["measurement"], _by_label(durations))


def _by_label(numbers: Mapping[str, float]) -> Rows:
    return [([label], number) for label, number in numbers.items()]


def _live_jobs(now: datetime) -> Iterator[Metric]:
    workers, busy = live_clusters.count_workers(), gauges.jobs_working()
    probes = rollup_queries.distributions("probe", PERIODS["24h"], now, label=None)
    probe_p95 = probes.get("", distributions.EMPTY_DISTRIBUTION).percentile(0.95) or 0.0
    for name, number, text in (
        ("queue_lag_seconds", gauges.queue_lag(),
         "For how long the work that a free worker could take has been due, in the worst user's case; now."),
        ("longest_waiting_seconds", gauges.longest_waiting(), "Age of the oldest job that has not ended; now."),
        ("outbox_due_seconds", gauges.outbox_lag(),
         "For how long a message of the outbox has been due whose receiver does not fail; now."),
        ("workers", workers, "Workers of all clusters that are alive; now."),
        ("clusters", live_clusters.live_clusters().count(), "Clusters that are alive; now."),
        ("workers_busy", busy, "Jobs that a worker holds; now."),
        ("worker_utilization", min(busy / workers, 1.0) if workers else 0.0,
         "Share of the workers that hold a job, 0 to 1; now."),
        ("ann_probe_p95_seconds", probe_p95, "The time that 95 % of the last day's index probes did not exceed."),
    ):  # fmt: skip
        yield gauge(name, text, [], [([], number)])


def _connectors(snapshot: Mapping[str, Any]) -> Iterator[Metric]:
    queue = gauges.connector_queue()
    text = "Pages of syncs in the queue: visible to workers, or held (by a worker, or waiting for a provider); now."
    yield gauge("ingestion_messages", text, ["state"], _by_label({"visible": queue.visible, "held": queue.held}))
    text = "Age of the oldest page in the queue; now."
    yield gauge("ingestion_oldest_seconds", text, [], [([], queue.oldest)])
    text = "For how long the page that has waited the longest for a worker has been visible; now."
    yield gauge("ingestion_due_seconds", text, [], [([], queue.due)])
    text = "Pages that were archived after their last failure, as last measured."
    yield gauge("ingestion_archived", text, [], [([], snapshot.get("archived", 0))])
    text = "Tenants' connected systems by provider and status, as last measured."
    sources = [([provider, status], number) for provider, status, number in snapshot.get("sources", [])]
    yield gauge("sources", text, ["provider", "status"], sources)


def _statutes(snapshot: Mapping[str, Any]) -> Iterator[Metric]:
    text = "Consumers of the statutes' queue that are alive, by state; now."
    yield gauge("statutes_consumers", text, ["state"], _by_label(gauges.statute_consumers()))
    text = "Time since the last heartbeat of any consumer; no sample where no consumer is known."
    silence = gauges.consumer_silence()
    yield gauge("statutes_consumer_silence_seconds", text, [], [] if silence is None else [([], silence)])
    text = "Messages of each consumer since it started, each delivery counted: received, ended well, failed."
    family = CounterMetricFamily("accessa_statutes_messages", text, labels=["consumer", "outcome"])
    for consumer, outcome, messages in gauges.statute_messages():
        family.add_metric([safe_label(consumer), outcome], messages)
    yield family
    text = "Time since the last change of the version in processing that has not changed for longest; now."
    yield gauge("statutes_still_seconds", text, [], [([], gauges.statute_stall())])
    for name, title in (("laws", "Statutes"), ("versions", "Versions of statutes")):
        text = f"{title} by status, as last measured."
        yield gauge(f"statutes_{name}", text, ["status"], _by_label(snapshot.get(name, {})))


def _vendors(now: datetime) -> Iterator[Metric]:
    text = "Whether a vendor's breaker holds calls back: 1 open, 0.5 while one call probes it, 0 closed."
    level = {"closed": 0.0, "half-open": 0.5, "open": 1.0}
    breakers = [([breaker.vendor, breaker.part], level[breaker.state]) for breaker in gauges.breaker_states()]
    yield gauge("vendor_breaker", text, ["vendor", "part"], breakers)
    text = "Seconds for which a vendor's calls are paused, by reason."
    yield gauge("vendor_pause_seconds", text, ["vendor", "reason"], gauges.vendor_pauses())
    spend = spend_and_storage.recent_spend(now.date())
    for name, field, text in (
        ("spend_cents", "cents", "Spent, unsettled calls included, in cents of a UTC day."),
        ("spend_retry_cents", "retry_cents", "Spent in retries of a stage."),
        (
            "spend_unsettled_cents",
            "unsettled_cents",
            "Spent in calls that were not settled: they may have been charged.",
        ),
        ("bought", "quantity", "Pages or tokens bought."),
        ("vendor_purchases", "calls", "Calls that cost money."),
    ):
        rows = [([row.day, row.vendor, row.unit], getattr(row, field)) for row in spend]
        yield gauge(name, text, ["day", "vendor", "unit"], rows)


def _search_engine() -> Iterator[Metric]:
    is_enabled = search_feed.is_enabled()
    messages, age = search_feed.backlog() if is_enabled else (0, 0.0)
    text = "1 if the search engine answers; while it does not, PostgreSQL answers searches; now."
    yield gauge("search_engine_up", text, [], [([], load_engine().is_reachable())] if is_enabled else [])
    text = "Changes of documents that the search engine does not have yet; now."
    yield gauge("search_engine_pending", text, [], [([], messages)] if is_enabled else [])
    text = "Age of the oldest change that the search engine does not have yet; now."
    yield gauge("search_engine_lag_seconds", text, [], [([], age)] if is_enabled else [])


def _storage() -> Iterator[Metric]:
    text = "Bytes of stored documents: the largest twenty tenants by id, all others together."
    yield gauge("stored_bytes", text, ["tenant", "type"], spend_and_storage.stored_by_tenant(20))
    by_type = spend_and_storage.stored_by_type()
    yield gauge("stored_documents", "Stored documents by type.", ["type"], [([t], n) for t, n, _ in by_type])
    yield gauge("stored_pages", "Pages of stored documents by type.", ["type"], [([t], n) for t, _, n in by_type])
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        (size,) = cursor.fetchone()
    yield gauge("database_bytes", "Size of the database.", [], [([], size)])
    is_replicated = read_replica.is_configured()
    lag = read_replica.lag_bytes() if is_replicated else None
    text = "1 if the read replica answers and follows this primary; now."
    yield gauge("replica_up", text, [], [([], lag is not None)] if is_replicated else [])
    text = "Bytes of the primary's log that the read replica has not replayed; now."
    yield gauge("replica_lag_bytes", text, [], [] if lag is None else [([], lag)])
    free: Rows = []
    if settings.STORAGE == "local":
        root = settings.STORAGE_ROOT
        disk = shutil.disk_usage(next(path for path in (root, *root.parents) if path.exists()))
        free = [([], disk.free / disk.total)]
    text = "Free share of the disk of local storage, as the web process that answers sees it."
    yield gauge("disk_free_ratio", text, [], free)
