"""Small kill loop of statutes: SIGKILL around artifacts and billed calls."""

from pathlib import Path

import pytest
from django.db import connections

from testing.chaos import statute_samples, statutes
from testing.cluster import database_params

pytestmark = pytest.mark.slow

POINTS = (
    "embedding:answered", "uploading:law", "uploading:vectors", "uploading:manifest", "embedded:after-commit",
    "statute:settled",
)  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_killed_consumers_leave_the_same_statutes(tmp_path: Path) -> None:
    laws = list(statute_samples.statutes(3))
    connections.close_all()  # a database that is in use cannot be copied

    calm, broken = statutes.trial(database_params(), tmp_path, laws, points=POINTS, rounds=1, extra=0)

    assert calm.laws.total() == 2
    assert (calm.bought_again, calm.differences(calm)) == (0, [])
    assert broken.differences(calm) == []
    assert set(broken.points) == set(POINTS)
