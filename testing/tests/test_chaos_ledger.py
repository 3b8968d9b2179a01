"""Count of purchases in the kill loop: what was bought, against what was committed of it."""

from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from jobs.models import UploadJob
from testing.chaos import world
from testing.factories.pending_documents import create_chunked_job, passage_texts
from testing.personas import Person, run_all_jobs


@pytest.mark.django_db
def test_a_copied_vector_is_not_counted_as_a_purchase(
    ana: Person, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.EMBEDDER = "testing.embedders.CountingEmbedder"
    ledger = tmp_path / "purchases"
    monkeypatch.setenv("ACCESSA_PURCHASES", str(ledger))
    first, second = passage_texts(2)
    with connection.cursor() as cursor:
        cursor.execute(world.LEDGER)

    create_chunked_job([first, second, first], user_id=ana.id)  # a text repeated in its document
    create_chunked_job([second, first], user_id=ana.id)  # texts of the tenant's other document
    run_all_jobs()  # a drain ends after two seconds, which a busy machine needs for less

    assert set(UploadJob.objects.values_list("state", flat=True)) == {"done"}
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM committed_vectors")
        assert cursor.fetchone() == (2,)
    assert ledger.read_text().count("\n") == 2
