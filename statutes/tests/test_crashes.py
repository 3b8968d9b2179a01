"""A worker that is killed at every failpoint: search and bucket end as without a crash."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now

from accessa.integrity.violations import find_violations
from documents import services as services_of_documents
from documents.models import Document
from jobs import failpoints, services, worker
from jobs.claims import ClaimLost
from jobs.models import UploadJob
from statutes.models import Law, LawVersion
from statutes.s3 import artifact_upload
from statutes.tests.sample_laws import (
    LOWER,
    RATE,
    TAXED,
    are_searchable,
    bucket_objects,
    deliver,
    law_xml,
    process,
    put_file,
    statute_message,
    version_of,
)
from testing.fakes.s3 import S3Server
from testing.personas import claim_at_stage

pytestmark = pytest.mark.slow

POINTS = (
    "queued:stored", "queued:after-commit", "job_validated:end", "parsing:stored", "parsing:before-commit",
    "parsed:begin", "parse_validated:end", "chunking:before-commit", "chunks_buffered:after-commit",
    "chunked:before-commit", "embedding:answered", "embeddings_buffered:before-commit", "uploading:former",
    "uploading:vectors", "uploading:tidying", "embedded:before-commit",
)  # fmt: skip


def run_until_killed() -> bool:
    """Let a process of its own carry what is due; tell whether it died of it."""
    connection.close()
    child = os.fork()
    if child == 0:
        try:
            worker.drain()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


BESIDE = (
    "queued:after-commit", "parsing:before-commit", "chunks_buffered:after-commit", "embedding:answered",
    "embeddings_buffered:before-commit", "uploading:former", "uploading:tidying", "embedded:before-commit",
)  # fmt: skip
AT_HOME = ("parsing:before-commit", "parsing:after-commit", "chunked:before-commit", "uploading:vectors")


def run_until_done(look: Callable[[], object] = lambda: None) -> int:
    """Go on with another worker whenever one has died, and call ``look``; return how many have."""
    deaths = 0
    while UploadJob.objects.exclude(state="done").exists():
        deaths += (died := run_until_killed())
        if died:
            look()
        UploadJob.objects.filter(state="working").update(lease_until=Now())
        services.requeue_due_and_expired()
    return deaths


@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_at_any_point_leaves_the_same_result(
    laws: S3Server, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.JOBS_MAX_RETRIES, settings.JOBS_DRAIN_SECONDS = 50, 30
    process(laws, law_xml(TAXED, RATE))
    process(laws, law_xml(TAXED, LOWER), "2024-02")
    undisturbed = bucket_objects(laws)
    services_of_documents.delete(Document.objects.get())
    Law.objects.all().delete()
    LawVersion.objects.all().delete()
    process(laws, law_xml(TAXED, RATE))

    for point in POINTS:
        (tmp_path / f"{point}~1").touch()
    monkeypatch.setattr(failpoints, "_ARMED", str(tmp_path))
    deliver(laws, law_xml(TAXED, LOWER), "2024-02")
    deaths = run_until_done()
    monkeypatch.setattr(failpoints, "_ARMED", "")

    assert {path.name for path in tmp_path.glob("*~*")} == set()
    assert deaths == len(POINTS)
    assert bucket_objects(laws) == undisturbed
    assert are_searchable(TAXED, RATE, LOWER) == [True, False, True]
    assert Law.objects.get().version == "2024-02"
    assert list(find_violations(deep=True)) == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("text", "points"), [(LOWER, BESIDE), (RATE, AT_HOME)], ids=["from another file", "from the same file"]
)
def test_a_worker_killed_while_reprocessing_keeps_the_live_version(
    text: str, points: tuple[str, ...], laws: S3Server, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.JOBS_MAX_RETRIES, settings.JOBS_DRAIN_SECONDS = 50, 30
    process(laws, law_xml(TAXED, RATE))
    seen: list[object] = []
    for point in points:
        (tmp_path / f"{point}~1").touch()
    monkeypatch.setattr(failpoints, "_ARMED", str(tmp_path))

    deliver(laws, law_xml(TAXED, text), force_reprocess=True)
    deaths = run_until_done(lambda: seen.append((are_searchable(TAXED, RATE, LOWER), Law.objects.get().status)))
    monkeypatch.setattr(failpoints, "_ARMED", "")

    assert deaths == len(points)
    assert seen == [([True, True, False], "embedded")] * deaths
    assert (are_searchable(TAXED, text), sum(are_searchable(RATE, LOWER))) == ([True, True], 1)
    assert list(find_violations(deep=True)) == []


@pytest.mark.django_db
def test_an_outdated_version_restores_the_artifacts_of_the_live_one(laws: S3Server) -> None:
    deliver(laws, law_xml(RATE), "2024-01")
    claim = claim_at_stage("embedded")
    process(laws, law_xml(LOWER), "2024-02")
    before = bucket_objects(laws)
    put_file(laws, b"what the first try has put there", key="normalized/LIVA/law.json")

    worker.run_stage(claim)

    assert bucket_objects(laws) == before


@pytest.mark.django_db
def test_a_lost_lock_writes_no_manifest(laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))
    manifest = bucket_objects(laws)["normalized/LIVA/manifest.json"]
    version = version_of(statute_message())
    LawVersion.objects.update(uploader_id="another")
    version.refresh_from_db()

    def unsure() -> None:
        raise ClaimLost("lost")

    with pytest.raises(ClaimLost):
        artifact_upload.upload_artifacts(version, ensure_lock=unsure)

    assert bucket_objects(laws)["normalized/LIVA/manifest.json"] == manifest
