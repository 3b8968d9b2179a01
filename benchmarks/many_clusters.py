"""Many clusters on one database, whose jobs wait for a vendor: jobs per second, connections, memory."""

import os
import time
from contextlib import ExitStack
from typing import Any

import psutil
from django.db import connection

from accessa.embedded_postgres.server import EmbeddedServer
from benchmarks import database, idle_cluster, noop_jobs, server_costs, subprocesses
from benchmarks.report import print_progress
from testing.cluster import create_jobs

WORKERS, CALL_SECONDS = 4, 2.0  # of a cluster; of a job, which does nothing else
SECONDS, START_SECONDS = 20.0, 300.0
CONNECTIONS = 1000  # a worker that runs a job has two, its own and its heartbeat's
RATE_GOAL = 0.9  # of what the workers would do if nothing but the call took time
MB_FREE_FOR_A_CLUSTER = 400
WORKING = "SELECT count(*) FROM upload_jobs WHERE state = 'working'"
DONE = "SELECT count(*) FROM upload_jobs WHERE state = 'done'"


def measure(clusters: int) -> dict[str, Any]:
    """Run so many clusters, or as many as there is memory for, until all workers have a job; measure from then on."""
    count = max(1, min(clusters, psutil.virtual_memory().available // 2**20 // MB_FREE_FOR_A_CLUSTER))
    workers = count * WORKERS
    _raise_max_connections()
    noop_jobs.truncate_tables()
    with connection.cursor() as cursor:
        jobs = int(workers / CALL_SECONDS * (START_SECONDS + SECONDS))
        create_jobs(cursor, jobs, "sleep", users=2 * workers, seconds=CALL_SECONDS)
    database.analyze_tables("upload_jobs", "documents")
    with ExitStack() as stack, database.connect() as observer:
        started = [stack.enter_context(subprocesses.running_cluster(WORKERS=str(WORKERS))) for _ in range(count)]
        subprocesses.wait_until(lambda: _value(observer, WORKING) >= 0.95 * workers, seconds=START_SECONDS)
        rate, costs = _measure_rate(observer)
        trees = [[each, *each.children(recursive=True)] for each in started]
        row = {
            "clusters": count,
            "workers": workers,
            "jobs_per_second": rate,
            "ratio": rate / (workers / CALL_SECONDS),
            "connections": idle_cluster.count_connections(),
            "resident_mb": sum(idle_cluster.private_and_shared_mb(process) for tree in trees for process in tree),
            "machine_cpu_percent": costs["machine_cpu_percent"],
            "postgres_cpu_percent": 100 * costs["postgres"] / costs["seconds"],
            "statements_per_second": costs["statements"] / costs["seconds"],
        }
        for process in started:  # at once, not one after the other
            process.terminate()
    row["meets_goal"] = row["ratio"] >= RATE_GOAL
    print_progress("many clusters:", row, "load", os.getloadavg()[0])
    return row


def _measure_rate(observer: Any) -> tuple[float, dict[str, float]]:
    psutil.cpu_percent()
    with server_costs.measured_costs(psutil.Process()) as costs:
        began, done = time.monotonic(), _value(observer, DONE)
        time.sleep(SECONDS)
        rate = (_value(observer, DONE) - done) / (time.monotonic() - began)
    return rate, costs | {"machine_cpu_percent": psutil.cpu_percent()}


def _value(observer: Any, sql: str) -> int:
    return int(observer.execute(sql).fetchone()[0])


def _raise_max_connections() -> None:
    with database.connect(user="postgres") as superuser:
        superuser.execute(f"ALTER SYSTEM SET max_connections = {CONNECTIONS}")
    connection.close()
    server = EmbeddedServer()
    server.stop()
    server.ensure_running()
