"""Failover of PostgreSQL: the primary dies while documents are taken, and its standby is promoted."""

import tempfile
from pathlib import Path

import pytest

from testing.chaos import failover
from testing.pytest_postgres import SCRATCH

pytestmark = pytest.mark.slow


@pytest.fixture
def folder() -> Path:
    """Return a short path, where the end of the session stops what a failed test leaves."""
    return Path(tempfile.mkdtemp(prefix="failover-", dir=SCRATCH))


def test_a_promoted_standby_has_all_that_was_acknowledged_and_the_product_follows_it(folder: Path) -> None:
    report = failover.trial(folder, failovers=1)

    assert report.ok, report
    assert report.documents > 3
    assert report.back_seconds[0] <= 15
