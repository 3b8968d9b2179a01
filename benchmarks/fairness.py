"""Claim times of a queue whose oldest 99 % belong to one user at the concurrency cap."""

import json
import subprocess
import sys
from typing import Any

from benchmarks import database, noop_jobs, pickup_latency, subprocesses
from benchmarks.report import percentile, print_progress
from jobs import claim_queries
from jobs.models import UploadJob

CLAIMERS, CLAIMS = 2, 600
CLAIM_GOAL = 25.0
# The crowd's own two running jobs, with leases that outlast the measurement.
AT_THE_CAP = """
    UPDATE upload_jobs SET state = 'working', claim_token = gen_random_uuid(), claimed_at = now(),
        claimed_by = 'elsewhere', lease_until = now() + interval '1 day', attempts = 1, slot = s.slot
    FROM (SELECT job_id, (row_number() OVER ())::smallint - 1 AS slot FROM (
        SELECT job_id FROM upload_jobs ORDER BY created_at LIMIT 2) oldest) s
    WHERE upload_jobs.job_id = s.job_id"""


def measure(rows: int, *, samples: int) -> dict[str, Any]:
    """Claim latencies of two workers at once, and the pickup of a newcomer, while the crowd is blocked."""
    print_progress(f"seeding {rows} rows")
    noop_jobs.truncate_tables()
    noop_jobs.create_jobs_of_one_user(rows * 99 // 100)
    noop_jobs.create_jobs(rows // 100, users=100, pipeline="noop")
    with database.connect() as connection:
        connection.execute(AT_THE_CAP)
    database.analyze_tables("upload_jobs", "documents")
    claim_times = _time_claims(rows)
    with subprocesses.running_cluster():
        subprocesses.wait_until(_begun, seconds=30)
        busy = pickup_latency.measure_latencies(samples // 5)
        subprocesses.wait_until(lambda: not _other_jobs_claimable(), seconds=60)
        idle = pickup_latency.measure_latencies(samples)
    return {
        "claim_p50_ms": percentile(claim_times, 0.5),
        "claim_p99_ms": percentile(claim_times, 0.99),
        "claims": len(claim_times),
        "pickup_p50_ms": percentile(idle, 0.5),
        "pickup_p95_ms": percentile(idle, 0.95),
        "pickup_while_others_run_p95_ms": percentile(busy, 0.95),
    }


def _other_jobs_claimable() -> bool:
    with database.connect() as connection:
        return bool(claim_queries.count_claimable(connection.cursor(), most=1))


def _begun() -> bool:
    return UploadJob.objects.filter(state="done", claimed_by__contains=":").exists()


def _time_claims(rows: int) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.claim_process", str(min(CLAIMS, rows // 500))]
    claimers = [subprocess.Popen(command, cwd=subprocesses.ROOT, stdout=subprocess.PIPE) for _ in range(CLAIMERS)]
    answers = [claimer.communicate(timeout=120)[0] for claimer in claimers]
    return [milliseconds for answer in answers for milliseconds in json.loads(answer)]
