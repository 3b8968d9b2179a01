"""The import of 200 documents of 20 users, killed on its way, repeated, and rolled back."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from accessa.integrity.violations import find_violations
from accounts.models import User
from documents.models import Document
from documents.storage import buckets
from embeddings.models import DocumentChunk
from legacy.models import ImportRun, LegacyDocument
from legacy.tests.conftest import confirm
from testing.cluster import database_params, database_url, wait_until
from testing.fork_server import ForkServer
from testing.old_system import DEFECTS, OldSystem
from testing.personas import run_all_jobs

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
DOCUMENTS, USERS, CHUNKS = 95, 10, 4  # and one document for each defect


def import_through_kills(mapping: Path, settings: Any, *, kills: int) -> None:
    """Kill the import ``kills`` times, each when it has got some documents further, and then let it end."""
    randomness = random.Random(992)
    names = ("LEGACY_DATABASE_URL", "LEGACY_BUCKET", "LEGACY_DECRYPT", "EMBEDDER")
    environment = {name: str(getattr(settings, name)) for name in names}
    environment["DATABASE_URL"] = database_url(database_params())
    with ForkServer(environment, mapping.with_suffix(".log")) as fork_server:
        for _ in range(kills):
            target = LegacyDocument.objects.count() + randomness.randint(1, DOCUMENTS // (kills + 1))
            process = fork_server.fork("legacy", "import", "--mode", "adopt", "--mapping", str(mapping))
            wait_until(lambda: LegacyDocument.objects.count() >= target, seconds=60)  # noqa: B023
            process.kill()
            process.wait()
    with pytest.raises(CommandError, match="are refused"):
        call_command("legacy", "import", "--mode", "adopt", mapping=mapping)


def test_kills_leave_neither_gaps_nor_duplicates(make_old_system: Any, mapping_path: Path, settings: Any) -> None:
    old: OldSystem = make_old_system(documents=DOCUMENTS, users=USERS, chunks=CHUNKS)
    confirm(mapping_path)
    call_command("legacy", "import", "--users", mapping=mapping_path)

    import_through_kills(mapping_path, settings, kills=3)

    refused = [code for name, code in DEFECTS.items() if code and name != "foreign"]
    codes = LegacyDocument.objects.filter(state="refused").values_list("code", flat=True)
    assert Counter(codes) == Counter(refused)
    assert LegacyDocument.objects.count() == len(old.ids) == DOCUMENTS + len(DEFECTS)
    assert Document.objects.count() == DOCUMENTS + 1  # the one that is reingested
    assert DocumentChunk.objects.count() == DOCUMENTS * CHUNKS
    run_all_jobs()
    assert list(find_violations(deep=True)) == []
    call_command("legacy", "validate", mapping=mapping_path)

    before = set(LegacyDocument.objects.values_list("old_id", "document_id", "job_id"))
    with pytest.raises(CommandError, match="are refused"):
        call_command("legacy", "import", "--mode", "adopt", mapping=mapping_path)
    assert set(LegacyDocument.objects.values_list("old_id", "document_id", "job_id")) == before

    for run in ImportRun.objects.order_by("-started_at"):
        call_command("legacy", "rollback", run=run.pk)
    assert not Document.objects.exists()
    assert not LegacyDocument.objects.exists()
    assert not User.objects.exists()
    assert [name for bucket in ("raw", "parsed") for name in buckets.locate(f"storage://{bucket}/any")[0].names()] == []
