"""Registry of live clusters."""

import os
import signal

import pytest
from django.db import connection

from jobs.cluster import live_clusters
from jobs.models import Cluster
from testing.cluster import running_cluster, wait_until

pytestmark = pytest.mark.django_db(transaction=True)
UNSEEN = "UPDATE clusters SET seen_at = clock_timestamp() - %s::interval"


def age_cluster(interval: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(UNSEEN, [interval])


@pytest.mark.slow
def test_a_killed_cluster_counts_as_live_for_half_a_minute() -> None:
    with running_cluster(workers=1) as machine:
        wait_until(lambda: live_clusters.count_workers() == 1, seconds=10)
        seen = live_clusters.live_clusters().get()

        os.killpg(machine.process.pid, signal.SIGKILL)
        machine.process.wait()

    assert seen.name.endswith(f":{machine.process.pid}")
    assert abs(seen.clock_ahead) < 5
    assert live_clusters.count_workers() == 1
    age_cluster("31 seconds")
    assert (live_clusters.count_workers(), live_clusters.live_clusters().count()) == (0, 0)


@pytest.mark.slow
def test_a_graceful_stop_unregisters_the_cluster() -> None:
    with running_cluster(workers=1) as machine:
        wait_until(lambda: live_clusters.count_workers() == 1, seconds=10)

        assert machine.stop() == 0

    assert Cluster.objects.count() == 0


def test_clusters_unseen_for_an_hour_are_deleted() -> None:
    for name, interval in (("late:1", "59 minutes"), ("gone:1", "61 minutes")):
        Cluster.objects.create(name=name, workers=3)
        with connection.cursor() as cursor:
            cursor.execute(f"{UNSEEN} WHERE name = %s", [interval, name])

    live_clusters.record_heartbeat()

    names = set(Cluster.objects.values_list("name", flat=True))
    assert (len(names), "late:1" in names, "gone:1" in names) == (2, True, False)
    assert live_clusters.count_workers() == 2  # this process's


def test_a_second_heartbeat_changes_only_seen_at() -> None:
    live_clusters.record_heartbeat()
    first = live_clusters.live_clusters().get()

    live_clusters.record_heartbeat()

    again = live_clusters.live_clusters().get()
    assert again.started_at == first.started_at
    assert again.seen_at > first.seen_at


def test_the_fingerprint_holds_digests_only() -> None:
    live_clusters.record_heartbeat()

    fingerprint = live_clusters.live_clusters().get().fingerprint

    assert {"SECRET_KEY", "STORAGE", "OPENAI_API_KEY"} <= fingerprint.keys()
    assert {len(digest) for digest in fingerprint.values()} == {24}
