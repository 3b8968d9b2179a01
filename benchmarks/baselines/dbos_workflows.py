"""Baseline for the job queue: DBOS Transact with workflows of eleven no-op steps. Argument: the URL of its database."""

import signal
import sys

STEPS, QUEUE, VERSION = 11, "steps", "1"
FINISHED = "SELECT to_timestamp(completed_at / 1000.0) FROM dbos.workflow_status WHERE status = 'SUCCESS'"
UNFINISHED = "dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')"


def enqueue(url: str, count: int) -> None:
    """Create DBOS's tables and queue ``count`` workflows."""
    from dbos import DBOSClient, run_dbos_database_migrations  # noqa: PLC0415  optional

    run_dbos_database_migrations(system_database_url=url)
    client = DBOSClient(system_database_url=url)
    for _ in range(count):
        client.enqueue({"queue_name": QUEUE, "workflow_name": "steps", "app_version": VERSION})
    client.destroy()


def work(url: str) -> None:
    from dbos import DBOS  # noqa: PLC0415  optional

    DBOS(config={"name": "benchmark", "system_database_url": url, "application_version": VERSION, "log_level": "ERROR"})
    step = DBOS.step(name="noop")(_noop)

    @DBOS.workflow(name="steps")
    def steps() -> None:
        for _ in range(STEPS):
            step()

    DBOS.launch()
    # Ten looks a second, so that a process is never without work, as ours are not.
    DBOS.register_queue(QUEUE, worker_concurrency=20, polling_interval_sec=0.1)
    signal.sigwait({signal.SIGTERM})


def _noop() -> None:
    return None


if __name__ == "__main__":
    work(sys.argv[1])
