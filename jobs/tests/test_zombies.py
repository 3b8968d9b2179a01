"""A worker that was stopped past its lease wakes up and writes: it must be refused."""

from __future__ import annotations

import os
import signal

import pytest
from django.db import connection

from jobs.models import Event, UploadJob
from testing.cluster import Cluster, cluster, seed, until, worker_of

ROUNDS, STOPPED, GOING_ON = 2, 10, 4


def done() -> int:
    return UploadJob.objects.filter(state="done").count()


def stop_some() -> dict[int, object]:
    """SIGSTOP workers that are in the middle of a job; return their process ids and the jobs they hold."""
    working = UploadJob.objects.filter(state="working")
    until(lambda: working.count() >= STOPPED, seconds=10)
    held = {worker_of(job.claimed_by): job.pk for job in working[:STOPPED]}
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    return held


def refusals(machine: Cluster) -> int:
    return machine.said.count("Lost the claim of job")


@pytest.mark.django_db(transaction=True)
def test_what_a_stopped_worker_writes_after_its_lease_is_refused() -> None:
    with cluster(workers=STOPPED + GOING_ON, JOBS_LEASE_SECONDS=1) as machine:
        for round_ in range(1, ROUNDS + 1):
            with connection.cursor() as cursor:
                seed(cursor, STOPPED, "sleep", users=STOPPED, seconds=0.6)
            stopped = stop_some()
            until(lambda: done() == STOPPED * round_, seconds=30)

            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            until(lambda: refusals(machine) >= STOPPED * round_, seconds=10)

    zombies = ROUNDS * STOPPED
    assert Event.objects.filter(code="LEASE_EXPIRED").count() == zombies
    assert Event.objects.filter(code="FINALIZED").count() == zombies
    assert set(UploadJob.objects.values_list("state", "attempts")) == {("done", 2)}
