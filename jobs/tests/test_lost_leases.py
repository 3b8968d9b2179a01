"""Writes of a worker that was stopped past its lease are rejected."""

import os
import signal
from functools import partial

import pytest
from django.db import connection
from django.db.models import Q

from jobs.models import Event, UploadJob
from testing.cluster import Cluster, create_jobs, running_cluster, wait_until, worker_pid
from testing.sizes import size

pytestmark = pytest.mark.slow

ROUNDS, STOPPED, GOING_ON = size(2, full=20), 10, 4


def are_done(jobs: int) -> bool:
    return UploadJob.objects.filter(state="done").count() == jobs


def are_refused(machine: Cluster, writes: int) -> bool:
    return machine.log_text.count("Lost the claim;") >= writes


def stop_some() -> list[int]:
    """SIGSTOP workers that are in the middle of a job; return their process ids."""
    working = UploadJob.objects.filter(state="working")
    wait_until(lambda: working.count() >= STOPPED, seconds=10)
    held = [worker_pid(job.claimed_by) for job in working[:STOPPED]]
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    return held


@pytest.mark.django_db(transaction=True)
def test_writes_after_an_expired_lease_are_rejected() -> None:
    with running_cluster(workers=STOPPED + GOING_ON, JOBS_LEASE_SECONDS=1) as machine:
        for ended in range(STOPPED, ROUNDS * STOPPED + 1, STOPPED):
            with connection.cursor() as cursor:
                create_jobs(cursor, STOPPED, "sleep", users=STOPPED, seconds=0.6)
            stopped = stop_some()
            wait_until(partial(are_done, ended), seconds=30)

            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            wait_until(partial(are_refused, machine, ended), seconds=10)

    zombies = ROUNDS * STOPPED
    # A busy machine may let a lease of a second run out under a worker that nobody stopped, and is an overload then.
    assert Event.objects.filter(code__in=["LEASE_EXPIRED", "OVERLOADED"]).count() >= zombies
    assert Event.objects.filter(code="FINALIZED").count() == zombies
    assert not UploadJob.objects.exclude(Q(attempts__gte=2) | Q(overloads__gte=1), state="done").exists()
