"""Cost of an idle cluster: statements and CPU time a second, connections, resident memory."""

import os
import time
from typing import Any

import psutil
from django.db import connection

from benchmarks import database, noop_jobs, pickup_latency, server_costs, subprocesses
from benchmarks.report import print_progress

STATEMENTS_GOAL, CONNECTIONS_GOAL = 3.0, 0.75  # a second, of a cluster; of a worker
SETTLE_SECONDS = 15.0  # until idle workers have closed their connections
COUNT_CONNECTIONS = """
    SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"""


def measure(workers: int, *, seconds: float) -> dict[str, Any]:
    """Run a cluster, let it work a little, and measure it while it waits. This process's own connection is closed."""
    noop_jobs.truncate_tables()
    server_costs.count_all_statements()
    with subprocesses.running_cluster(WORKERS=str(workers)) as process:
        pickup_latency.measure_latencies(5 * workers)  # until every worker has worked
        connection.close()
        time.sleep(min(SETTLE_SECONDS, seconds))
        with server_costs.measured_costs(process) as costs:
            time.sleep(seconds)
        tree = [process, *process.children(recursive=True)]
        row = {
            "statements_per_second": costs["statements"] / costs["seconds"],
            "cpu_percent": 100 * costs["python"] / costs["seconds"],
            "postgres_cpu_percent": 100 * costs["postgres"] / costs["seconds"],
            "connections": count_connections(),
            "processes": len(tree),
            "resident_mb": sum(map(private_and_shared_mb, tree)),
        }
    row["meets_goal"] = row["statements_per_second"] <= STATEMENTS_GOAL and row["connections"] <= max(
        2, CONNECTIONS_GOAL * workers
    )
    print_progress(f"idle, {workers} workers:", row, "load", os.getloadavg()[0])
    return row


def count_connections() -> int:
    with database.connect(user="postgres") as superuser:
        row = superuser.execute(COUNT_CONNECTIONS).fetchone()
    return int(row[0]) if row else 0


def private_and_shared_mb(process: psutil.Process) -> float:
    """Return the proportional set size: what processes share is divided among them."""
    return float(process.memory_full_info().pss) / 2**20
