"""Small kill loop of the pipeline: SIGKILL of real processes at every failpoint and at random."""

from pathlib import Path

import pytest
from django.db import connections

from testing.chaos import kill_loop, verdict, world
from testing.cluster import database_params

pytestmark = pytest.mark.slow


@pytest.mark.django_db(transaction=True)
def test_nothing_is_lost_doubled_or_paid_twice_whoever_is_killed(tmp_path: Path) -> None:
    connections.close_all()  # a database that is in use cannot be copied

    broken, calm = kill_loop.trial(database_params(), tmp_path, rounds=1, extra=3)

    outcome = verdict.verdict(broken, calm)
    assert outcome.ok, outcome
    assert outcome.kills >= 40
    assert calm.rows.total() > 100


@pytest.mark.django_db(transaction=True)
def test_with_vendors_every_parse_is_bought_once_though_callbacks_are_lost_and_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections.close_all()
    at_purchases = tuple(point for point in world.POINTS if point.startswith(("job_validated", "parsing", "embedding")))
    monkeypatch.setattr(world, "POINTS", at_purchases)  # the others are met without vendors too

    broken, calm = kill_loop.trial(database_params(), tmp_path, rounds=1, extra=2, vendors=True)

    outcome = verdict.verdict(broken, calm)
    assert outcome.ok, outcome
    assert broken.parses.total() == broken.taken
    assert outcome.callbacks["lost"] > 0
