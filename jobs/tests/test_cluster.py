"""Real clusters: stops, kills, hanging workers and poison jobs."""

import os
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.db import connection

from accessa.server.supervisor import Child, Program
from jobs.models import Event, UploadJob
from testing.cluster import MANAGE, create_jobs, database_params, database_url, running_cluster, wait_until, worker_pid
from testing.sizes import size

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


def enqueue_jobs(count: int, pipeline: str, *, users: int = 5, **payload: Any) -> None:
    with connection.cursor() as cursor:
        create_jobs(cursor, count, pipeline, users=users, **payload)


def count_states(pipeline: str) -> Counter[str]:
    return Counter(UploadJob.objects.filter(pipeline=pipeline).values_list("state", flat=True))


def count_working() -> int:
    return UploadJob.objects.filter(state="working").count()


def count_active() -> bool:
    return UploadJob.objects.filter(state__in=["queued", "working", "retryable"]).exists()


def test_eight_processes_run_each_job_once() -> None:
    jobs = size(1000, full=80_000)
    enqueue_jobs(jobs, "noop", users=60)

    with running_cluster(workers=8):
        wait_until(lambda: not count_active(), seconds=size(60, full=600))

    runs = Event.objects.filter(code="FINALIZED").values_list("job_id", flat=True)
    assert (len(runs), len(set(runs))) == (jobs, jobs)
    released = Event.objects.filter(code="RELEASED").count()  # by a batch that a busy machine made slow
    assert Event.objects.filter(code="CLAIMED").count() == jobs + released
    assert len(set(UploadJob.objects.values_list("claimed_by", flat=True))) > 1


def test_deaths_in_batches_lose_and_double_nothing(tmp_path: Path) -> None:
    for point in ("batch:middle", "batch:before-commit", "batch:after-commit"):
        (tmp_path / f"{point}~1").touch()
        (tmp_path / f"{point}~2").touch()
    enqueue_jobs(1500, "noop", users=60)

    with running_cluster(workers=3, JOBS_LEASE_SECONDS=1, ACCESSA_FAILPOINTS=tmp_path):
        wait_until(lambda: not count_active(), seconds=60)

    runs = Event.objects.filter(code="FINALIZED").values_list("job_id", flat=True)
    assert (len(runs), len(set(runs))) == (1500, 1500)
    assert not list(tmp_path.glob("*~*"))
    assert Event.objects.filter(code="BATCH_LOST").exists()


@pytest.mark.parametrize("run", range(size(1, full=50)))
@pytest.mark.parametrize("group", [False, True], ids=["to the main process", "to the whole group"])
def test_sigterm_under_load_leaves_nothing_working(group: bool, run: int) -> None:
    enqueue_jobs(4, "sleep", users=2, seconds=60)
    enqueue_jobs(3000, "stages", users=40, stage="queued")
    with running_cluster(workers=4, JOBS_STOP_GRACE_SECONDS=1) as machine:
        wait_until(lambda: count_states("sleep")["working"] and count_states("stages")["done"], seconds=20)

        began = time.monotonic()
        code = machine.stop(group=group)

        assert code == 0
        assert time.monotonic() - began < 30
        assert [process for process in machine.tree() if process.is_running()] == []
    assert count_working() == 0
    held = UploadJob.objects.filter(pipeline="sleep", started_at__isnull=False)
    assert set(held.values_list("state", "attempts", "last_error")) == {("queued", 0, None)}
    assert Event.objects.filter(job__in=held).exclude(code__in=["CLAIMED", "RELEASED"]).count() == 0
    assert set(UploadJob.objects.values_list("attempts", "last_error")) <= {(0, None), (1, None)}


def test_sigterm_ends_a_cluster_whose_workers_all_hang() -> None:
    enqueue_jobs(2, "sleep", users=2, seconds=60)
    with running_cluster(workers=2, JOBS_STOP_GRACE_SECONDS=1) as machine:
        wait_until(lambda: count_working() == 2, seconds=20)
        enqueue_jobs(500, "noop", users=50)
        time.sleep(3)  # rings fill a queue that nobody empties, and django-q2's pusher waits for room

        began = time.monotonic()
        code = machine.stop()

        assert code == 0
        assert time.monotonic() - began < 15
        assert [process for process in machine.tree() if process.is_running()] == []
    assert count_working() == 0


def test_sigterm_lets_a_job_that_is_nearly_done_finish() -> None:
    enqueue_jobs(2, "nap", seconds=1.5)
    with running_cluster() as machine:
        wait_until(lambda: Event.objects.filter(code="ASLEEP").count() == 2, seconds=20)

        assert machine.stop() == 0

    assert count_states("nap") == {"done": 2}
    assert not Event.objects.filter(code="RELEASED").exists()


def test_workers_die_with_the_main_process() -> None:
    enqueue_jobs(2, "sleep", users=2, seconds=60)
    with running_cluster() as machine:
        wait_until(lambda: count_working() == 2, seconds=10)
        tree = machine.tree()

        machine.main.kill()

        _, alive = psutil.wait_procs(tree, timeout=2)
        assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


def test_a_cluster_recovers_from_killed_idle_workers() -> None:
    """django-q2 may lose its queue's lock with an idle worker: the watchdog then ends the cluster."""
    environment = {
        "DATABASE_URL": database_url(database_params()),
        "JOBS_PIPELINES": "testing.stub_pipelines.PIPELINES",
        "JOBS_HANG_SECONDS": "4",  # more than a cluster needs to begin on a busy machine, or it would never get there
        "JOBS_LEASE_SECONDS": "2",
    }
    machine = Child(Program("the workers", [*MANAGE, "qcluster"], None, environment))

    def guarded() -> list[psutil.Process]:
        if machine.reap() is not None or machine.process is None:
            machine.start()
        assert machine.process is not None
        processes = psutil.Process(machine.process.pid).children(recursive=True)
        return processes if len(processes) >= 5 else []

    try:
        for victims in (2, 1):
            wait_until(guarded, seconds=60)
            workers = sorted(guarded(), key=lambda process: process.pid)[1:3]
            for process in workers[:victims]:
                process.kill()
            enqueue_jobs(3, "noop")
            wait_until(lambda: guarded() and not count_active(), seconds=60)
    finally:
        machine.kill()
        machine.process and machine.process.wait()

    assert count_states("noop") == {"done": 6}


def test_a_poison_job_becomes_a_dead_letter_while_others_finish() -> None:
    enqueue_jobs(2, "die", users=2)
    enqueue_jobs(2, "hangs", users=2, seconds=60)
    enqueue_jobs(1, "crash")
    enqueue_jobs(100, "stages", users=10, stage="queued")

    with running_cluster(workers=4, JOBS_LEASE_SECONDS=1, JOBS_RETRY_BASE_SECONDS=0.1, JOBS_HANG_SECONDS=60) as machine:
        wait_until(lambda: count_states("stages") == {"done": 100}, seconds=20)
        wait_until(lambda: not count_active(), seconds=40)
        assert machine.process.poll() is None

    dead = UploadJob.objects.filter(state="deadletter").order_by("pipeline")
    assert [(job.pipeline, job.attempts, job.last_error and job.last_error["code"]) for job in dead] == [
        ("crash", 4, "internal"),
        ("die", 4, "WORKER_LOST"),
        ("die", 4, "WORKER_LOST"),
        ("hangs", 4, "STAGE_TIMEOUT"),
        ("hangs", 4, "STAGE_TIMEOUT"),
    ]


def test_the_alarm_kills_a_worker_that_holds_its_gil() -> None:
    enqueue_jobs(1, "deaf")
    with running_cluster(workers=1, JOBS_LEASE_SECONDS=1):
        wait_until(count_working, seconds=10)
        job = UploadJob.objects.get()
        worker = psutil.Process(worker_pid(job.claimed_by))

        psutil.wait_procs([worker], timeout=10)

        assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE
        wait_until(lambda: Event.objects.filter(code="LEASE_EXPIRED").exists(), seconds=10)


def test_a_long_job_keeps_its_lease() -> None:
    enqueue_jobs(1, "sleep", seconds=3)

    with running_cluster(JOBS_LEASE_SECONDS=1):
        wait_until(lambda: not count_active(), seconds=20)

    assert [*UploadJob.objects.values_list("state", "attempts")] == [("done", 1)]
    assert not Event.objects.filter(code="LEASE_EXPIRED").exists()


def test_until_idle_ends_the_cluster_when_the_queue_is_empty() -> None:
    enqueue_jobs(20, "noop")
    environment = os.environ | {
        "DATABASE_URL": database_url(database_params()),
        "JOBS_PIPELINES": "testing.stub_pipelines.PIPELINES",
    }

    ended = subprocess.run([*MANAGE, "qcluster", "--until-idle"], env=environment, timeout=30, capture_output=True)

    assert (ended.returncode, count_states("noop")) == (0, {"done": 20})
