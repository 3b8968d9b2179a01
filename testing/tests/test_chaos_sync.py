"""Small kill loop of the connectors: SIGKILL at every failpoint of a page, and at random."""

from pathlib import Path

import pytest
from django.db import connections

from testing.chaos import connectors
from testing.cluster import database_params
from testing.personas import Person

pytestmark = pytest.mark.slow


@pytest.mark.django_db(transaction=True)
def test_a_sync_whose_workers_are_killed_leaves_the_rows_of_an_undisturbed_one(ana: Person, tmp_path: Path) -> None:
    with connectors.create_queued_sync(ana.id, contacts=40, companies=40, deals=40) as environment:
        connections.close_all()  # a database that is in use cannot be copied

        calm = connectors.run(database_params(), tmp_path, "calm", environment)
        broken = connectors.run(database_params(), tmp_path, "broken", environment, rounds=1, extra=2)

    assert (calm.status, broken.status) == ({"completed": 1}, {"completed": 1})
    assert calm.documents.total() == 120
    assert broken.documents == calm.documents
    assert broken.clients == calm.clients
    assert broken.messages == 0
    assert set(broken.points) == set(connectors.POINTS)
    # A death between an answer and its rows buys one call's texts anew, and nothing else does.
    assert broken.bought <= calm.bought + broken.kills * connectors.BATCH
