"""Records synced per second from an instant provider, against a bare loop; and the growth of the worker's memory."""

import json
import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from typing import Any
from uuid import uuid4

from django.db import connection

from benchmarks import subprocesses
from benchmarks.memory_watch import recorded_memory
from benchmarks.report import Result, print_progress
from integrations.models import ClientIntelligence, ConnectedSource, IngestionJob, SourceDocument
from integrations.sync import lifecycle

SUMMARY = __doc__ or ""
GOAL = 500.0
MOST_GROWTH_MB = 30.0  # of a worker, from its first tenth to the end
SETTINGS = {
    "INTEGRATIONS_USE_FIXTURES": "true",  # no token is asked for
    "INTEGRATIONS_PROVIDERS": "hubspot=testing.fakes.instant_provider",
    "EMBEDDER": "testing.embedders.InstantEmbedder",
}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--bare", type=int, default=10_000, help="records of the bare loop")


def measure(options: Namespace) -> Result:
    records, bare_records = (100, 50) if options.quick else (options.records, options.bare)
    before = _run_bare_loop(bare_records)
    first = _sync(records)
    # On both sides: the machine may be busier in one hour than in the next.
    after = before if options.quick else _run_bare_loop(bare_records)
    bare = (before + after) / 2
    again = first if options.quick else _sync(records, source=first["source"])
    flat = first["grown_mb"] <= MOST_GROWTH_MB
    return Result(
        name="connectors",
        value=first["rate"],
        unit="records/s, one source",
        against="a bare loop in one process: fetch, embed, one transaction a record",
        ratio=first["rate"] / bare,
        goal=GOAL,
        ok=bool(first["rate"] >= GOAL and flat and first["failed"] == 0 and again["embedded"] == 0),
        details={
            "bare": bare,
            "records": records,
            "clients": ClientIntelligence.objects.count(),
            "unchanged_rate": again["rate"],
            "embedded_again": again["embedded"],
            "worker_mb": first["worker_mb"],
            "grown_mb": first["grown_mb"],
        },
    )


def _sync(records: int, source: ConnectedSource | None = None) -> dict[str, Any]:
    source = source or ConnectedSource.objects.create(user_id=uuid4(), provider="hubspot")
    job = lifecycle.start_sync(source, IngestionJob.Kind.FULL, by="benchmark")
    print_progress(f"{records} records …")
    with (
        subprocesses.running_cluster(**SETTINGS, INSTANT_RECORDS=str(records)) as process,
        recorded_memory(process) as memory,
    ):
        subprocesses.wait_until(lambda: _wait_for_sync(job.pk), seconds=3600)
    job.refresh_from_db()
    if job.status != IngestionJob.Status.COMPLETED or job.started_at is None or job.finished_at is None:
        raise RuntimeError(f"The sync ended as {job.status}: {job.error_message}")
    return {
        "source": source,
        "rate": job.items_seen / (job.finished_at - job.started_at).total_seconds(),
        "embedded": job.items_embedded,
        "failed": job.items_failed,
        "stored": SourceDocument.objects.filter(source=source).count(),
        "worker_mb": memory.peak,
        "grown_mb": memory.growth,
    }


def _wait_for_sync(job_id: Any) -> bool:
    connection.close_if_unusable_or_obsolete()
    return IngestionJob.objects.filter(pk=job_id, finished_at__isnull=False).exists()


def _run_bare_loop(records: int) -> float:
    """Return the records a second of the loop that anybody would write first."""
    command = [sys.executable, "-m", "benchmarks.baselines.bare_sync", str(records)]
    done = subprocess.run(
        command, env=os.environ | SETTINGS | {"INSTANT_RECORDS": str(records)}, stdout=subprocess.PIPE, check=True
    )
    return float(json.loads(done.stdout))
