"""Registry of live clusters."""

import os
import signal

import pytest
from django.db import connection

from jobs.cluster import registry
from jobs.models import Cluster
from testing.cluster import running_cluster, wait_until

pytestmark = pytest.mark.django_db(transaction=True)
UNSEEN = "UPDATE clusters SET seen_at = clock_timestamp() - %s::interval"


def age_cluster(interval: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(UNSEEN, [interval])


def test_a_killed_cluster_counts_as_live_for_half_a_minute() -> None:
    with running_cluster(workers=1) as machine:
        wait_until(lambda: registry.count_workers() == 1, seconds=10)
        seen = registry.live_clusters().get()

        os.killpg(machine.process.pid, signal.SIGKILL)
        machine.process.wait()

    assert seen.name.endswith(f":{machine.process.pid}")
    assert abs(seen.clock_ahead) < 5
    assert registry.count_workers() == 1
    age_cluster("31 seconds")
    assert (registry.count_workers(), registry.live_clusters().count()) == (0, 0)


def test_a_graceful_stop_unregisters_the_cluster() -> None:
    with running_cluster(workers=1) as machine:
        wait_until(lambda: registry.count_workers() == 1, seconds=10)

        assert machine.stop() == 0

    assert Cluster.objects.count() == 0


def test_clusters_unseen_for_an_hour_are_deleted() -> None:
    for name, interval in (("late:1", "59 minutes"), ("gone:1", "61 minutes")):
        Cluster.objects.create(name=name, workers=3)
        with connection.cursor() as cursor:
            cursor.execute(f"{UNSEEN} WHERE name = %s", [interval, name])

    registry.record_heartbeat()

    names = set(Cluster.objects.values_list("name", flat=True))
    assert (len(names), "late:1" in names, "gone:1" in names) == (2, True, False)
    assert registry.count_workers() == 2  # this process's


def test_a_second_heartbeat_changes_only_seen_at() -> None:
    registry.record_heartbeat()
    first = registry.live_clusters().get()

    registry.record_heartbeat()

    again = registry.live_clusters().get()
    assert again.started_at == first.started_at
    assert again.seen_at > first.seen_at


def test_the_fingerprint_holds_digests_only() -> None:
    registry.record_heartbeat()

    fingerprint = registry.live_clusters().get().fingerprint

    assert {"SECRET_KEY", "STORAGE", "OPENAI_API_KEY"} <= fingerprint.keys()
    assert {len(digest) for digest in fingerprint.values()} == {24}
