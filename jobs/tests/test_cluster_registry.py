"""Clusters say that they are up, by the database's clock, and are gone when they are gone."""

from __future__ import annotations

import os
import signal

import pytest
from django.db import connection

from jobs.cluster import registry
from jobs.models import Cluster
from testing.cluster import running_cluster, wait_until

pytestmark = pytest.mark.django_db(transaction=True)
UNSEEN = "UPDATE clusters SET seen_at = clock_timestamp() - %s::interval"


def unseen_for(interval: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(UNSEEN, [interval])


def test_a_cluster_is_seen_and_one_that_was_killed_is_so_for_half_a_minute() -> None:
    with running_cluster(workers=1) as machine:
        wait_until(lambda: registry.count_workers() == 1, seconds=10)
        seen = registry.live_clusters().get()

        os.killpg(machine.process.pid, signal.SIGKILL)
        machine.process.wait()

    assert seen.name.endswith(f":{machine.process.pid}")
    assert abs(seen.clock_ahead) < 5
    assert registry.count_workers() == 1
    unseen_for("31 seconds")
    assert (registry.count_workers(), registry.live_clusters().count()) == (0, 0)


def test_an_orderly_stop_leaves_no_row() -> None:
    with running_cluster(workers=1) as machine:
        wait_until(lambda: registry.count_workers() == 1, seconds=10)

        assert machine.stop() == 0

    assert Cluster.objects.count() == 0


def test_a_cluster_forgets_those_that_nobody_has_seen_for_an_hour() -> None:
    for name, interval in (("late:1", "59 minutes"), ("gone:1", "61 minutes")):
        Cluster.objects.create(name=name, workers=3)
        with connection.cursor() as cursor:
            cursor.execute(f"{UNSEEN} WHERE name = %s", [interval, name])

    registry.record_heartbeat()

    names = set(Cluster.objects.values_list("name", flat=True))
    assert (len(names), "late:1" in names, "gone:1" in names) == (2, True, False)
    assert registry.count_workers() == 2  # this process's


def test_saying_it_again_moves_only_the_last_sight() -> None:
    registry.record_heartbeat()
    first = registry.live_clusters().get()

    registry.record_heartbeat()

    again = registry.live_clusters().get()
    assert again.started_at == first.started_at
    assert again.seen_at > first.seen_at


def test_nothing_that_is_told_can_be_read() -> None:
    registry.record_heartbeat()

    told = registry.live_clusters().get().fingerprint

    assert {"SECRET_KEY", "STORAGE", "OPENAI_API_KEY"} <= told.keys()
    assert {len(digest) for digest in told.values()} == {24}
