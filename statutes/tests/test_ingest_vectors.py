"""Import of artifacts: the same search results, or an error and no change."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy
import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.db.models.functions import Now

from accounts.system_tenant import SYSTEM_TENANT_ID
from documents import services
from documents.models import Document
from documents.parsers.sandbox.client import ROOT
from embeddings import active_model, vector_store
from embeddings.embedders.registry import EmbeddingModel
from embeddings.models import DocumentChunk
from embeddings.search import bm25
from embeddings.search.hybrid_search import search
from jobs.models import UploadJob
from statutes import artifact_import, artifact_import_lambda, document_ids, stages
from statutes.artifact_import import FolderSource
from statutes.models import Law, LawVersion
from statutes.s3 import artifact_upload, keys
from statutes.s3.manifests import ManifestRefused
from statutes.tests.artifact_factories import CHUNKER, TEXTS, InterruptibleS3Server, create_version, stored_objects

pytestmark = pytest.mark.django_db
LAW = "ISR_2024"
Spoil = Callable[[Path], object]


@pytest.fixture(autouse=True)
def s3(s3: InterruptibleS3Server, store: None, settings: Any) -> InterruptibleS3Server:
    settings.EMBEDDER = "testing.embedders.InstantEmbedder"
    return s3


def published_folder(version: LawVersion) -> None:
    """As the pipeline's last stage does, but for the job's own state."""
    artifact_upload.upload_artifacts(version)
    UploadJob.objects.filter(document_id=version.pk).update(stage="embedded", state="done", finished_at=Now())
    active_model.confirm_active_model(SYSTEM_TENANT_ID, EmbeddingModel("instant", "1"))
    vector_store.commit_vectors(version.pk, EmbeddingModel("instant", "1"))
    Document.objects.filter(pk=version.pk).update(chunks_version=CHUNKER)
    bm25.index_document(version.pk)


def delete_law() -> None:
    for document in Document.objects.all():
        services.delete(document)
    LawVersion.objects.all().delete()
    Law.objects.all().delete()


def search_law() -> list[Any]:
    queries = ("¿Cuál es la tasa?", TEXTS[1], "impuesto")
    return [
        (passage.chunk_id, passage.text, passage.headings, passage.pages, round(passage.score, 9))
        for query in queries
        for passage in search(user_id=SYSTEM_TENANT_ID, query=query, k=3)
    ]


def refusal_code(folder: Path) -> str:
    with pytest.raises(ManifestRefused) as caught:
        artifact_import.import_artifacts(FolderSource(folder), LAW)
    return caught.value.code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of a law's artifacts; the database has nothing of it."""
    published_folder(create_version())
    for key, content in stored_objects().items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(content)
    delete_law()
    return tmp_path


@pytest.mark.slow
def test_an_imported_statute_is_searched_as_before() -> None:
    published_folder(create_version())
    before = search_law()
    sums = dict(DocumentChunk.objects.values_list("chunk_id", "vector_sha"))
    delete_law()
    out = StringIO()

    call_command("ingest_vectors", LAW, stdout=out)

    assert before
    assert search_law() == before
    assert dict(DocumentChunk.objects.values_list("chunk_id", "vector_sha")) == sums
    assert list(vector_store.corrupt_chunks()) == []
    assert out.getvalue() == "ISR_2024: 3 passages, 3 vectors\n"
    law_ = Law.objects.get()
    assert (law_.pk, law_.version, law_.status, law_.chunk_count) == (LAW, "2024-01", "embedded", 3)


def test_the_lambda_function_imports_the_statute_of_its_event() -> None:
    published_folder(create_version())
    before = search_law()
    delete_law()
    event = stages.lambda_event(LawVersion(law_id=LAW, version="2024-01"), "ab" * 32)

    answer = artifact_import_lambda.lambda_handler(event, None)

    assert answer == {"law_id": LAW, "passages": 3, "vectors": 3}
    assert before
    assert search_law() == before


def test_the_lambda_function_leaves_a_newer_version() -> None:
    published_folder(create_version())
    delete_law()
    event = stages.lambda_event(LawVersion(law_id=LAW, version="2024-01"), "ab" * 32)
    artifact_import_lambda.lambda_handler(event, None)
    Law.objects.update(version="2024-10")

    assert artifact_import_lambda.lambda_handler(event, None) == {"law_id": LAW, "code": "OUTDATED"}


def test_the_lambda_function_raises_for_a_statute_without_artifacts() -> None:
    event = stages.lambda_event(LawVersion(law_id="MISSING", version="1"), "ab" * 32)

    with pytest.raises(FileNotFoundError):
        artifact_import_lambda.lambda_handler(event, None)


@pytest.mark.slow
def test_the_lambda_function_is_imported_by_itself() -> None:
    code = "from statutes.artifact_import_lambda import lambda_handler; print(callable(lambda_handler))"
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "accessa.settings"}

    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)

    assert run.stdout == "True\n", run.stderr


def test_a_repeated_import_changes_nothing(folder: Path) -> None:
    artifact_import.import_artifacts(FolderSource(folder), LAW)
    before = list(DocumentChunk.objects.values_list("chunk_id", "updated_at", "vector_sha"))

    artifact_import.import_artifacts(FolderSource(folder), LAW)

    assert list(DocumentChunk.objects.values_list("chunk_id", "updated_at", "vector_sha")) == before


def test_a_statute_with_a_refused_passage_is_imported_in_part() -> None:
    published_folder(create_version(refused=[1]))
    delete_law()

    call_command("ingest_vectors", LAW, stdout=StringIO())

    assert DocumentChunk.objects.filter(embedding=None).values_list("chunk_ord", flat=True).get() == 1
    assert Law.objects.get().status == LawVersion.objects.get().status == Law.Status.PARTIAL_FAILED


def test_an_import_replaces_older_versions_only(tmp_path: Path) -> None:
    older = tmp_path / "older"
    published_folder(create_version())
    for key, content in stored_objects().items():
        (older / key).parent.mkdir(parents=True, exist_ok=True)
        (older / key).write_bytes(content)
    artifact_import.import_artifacts(FolderSource(older), LAW)
    published_folder(create_version(version="2024-10"))

    call_command("ingest_vectors", LAW, stdout=StringIO())

    assert refusal_code(older) == "OUTDATED"
    assert Document.objects.get().pk == document_ids.document_id(LAW, "2024-10")
    assert Law.objects.get().version == "2024-10"
    assert LawVersion.objects.get(version="2024-01").canonical is None


def test_vectors_of_another_model_are_rejected(folder: Path) -> None:
    other = create_version("OTHER")
    model, chunk = EmbeddingModel("wordllama", "1"), DocumentChunk.objects.filter(chunk_ord=0).get()
    active_model.confirm_active_model(SYSTEM_TENANT_ID, model)
    one = numpy.eye(1, 1536, dtype="f4")
    vector_store.buffer_vectors(other.pk, model, [chunk.pk], one, user_id=SYSTEM_TENANT_ID)
    vector_store.commit_vectors(other.pk, model)

    assert refusal_code(folder) == "OTHER_MODEL"
    assert not Law.objects.exists()


def _rewritten(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / keys.manifest(LAW)
    body = json.loads(path.read_bytes())
    change(body)
    path.write_text(json.dumps(body))


def _vectors(folder: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the vectors, and let the manifest name what they are now."""
    path = folder / keys.vectors(LAW)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    content = path.read_bytes()
    fields = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    _rewritten(folder, lambda body: body["embeddings"].update(fields))


def _of_another_document(body: dict[str, Any]) -> None:
    stranger = "6c8a1e6e-1f0b-4aa8-9f0a-1a7c2e6f2b42"
    body["chunks"][0]["chunk_id"] = stranger


def _lengthened(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"{}")


def _first(folder: Path, pattern: str) -> Path:
    return next(folder.glob(pattern))


SPOILT: dict[str, tuple[Spoil, str]] = {
    "a byte of the law": (lambda at: (at / keys.law(LAW)).write_bytes(b"{}"), "HASH_MISMATCH"),
    "a byte of a passage": (lambda at: _first(at, "chunks/*/*.json").write_bytes(b"{}"), "HASH_MISMATCH"),
    "a passage that is gone": (lambda at: _first(at, "chunks/*/*.json").unlink(), "HASH_MISMATCH"),
    "a vector more": (
        lambda at: _lengthened(at / keys.vectors(LAW)),
        "HASH_MISMATCH",
    ),
    "no manifest of ours": (lambda at: (at / keys.manifest(LAW)).write_bytes(b"[]"), "MANIFEST_INVALID"),
    "another law's": (lambda at: _rewritten(at, lambda body: body.update(law_id="X")), "MANIFEST_INVALID"),
    "another document": (lambda at: _rewritten(at, lambda body: body.update(document_id="X")), "MANIFEST_INVALID"),
    "a key outside": (
        lambda at: _rewritten(at, lambda body: body["law"].update(key="../../etc/passwd")),
        "MANIFEST_INVALID",
    ),
    "a time that is none": (
        lambda at: _rewritten(at, lambda body: body.update(ingest_timestamp="yesterday")),
        "MANIFEST_INVALID",
    ),
    "a time of no zone": (
        lambda at: _rewritten(at, lambda body: body.update(ingest_timestamp="2025-01-12T15:31:00")),
        "MANIFEST_INVALID",
    ),
    "a stranger's passage": (lambda at: _rewritten(at, _of_another_document), "VECTORS_NOT_SOUND"),
    "another width": (
        lambda at: _rewritten(at, lambda body: body["model"].update(dimensions=1024)),
        "VECTORS_TOO_WIDE",
    ),
    "narrow vectors": (
        lambda at: _vectors(at, lambda lines: lines[1].update(vector=lines[1]["vector"][:1024])),
        "VECTORS_TOO_WIDE",
    ),
    "another order": (lambda at: _vectors(at, lambda lines: lines.reverse()), "VECTORS_NOT_SOUND"),
    "a vector less": (lambda at: _vectors(at, lambda lines: lines.pop()), "VECTORS_NOT_SOUND"),
    "one more than passages": (lambda at: _vectors(at, lambda lines: lines.append(lines[0])), "VECTORS_NOT_SOUND"),
    "no numbers": (lambda at: _vectors(at, lambda lines: lines[0].update(vector=["a"] * 1536)), "VECTORS_NOT_SOUND"),
    "no length": (lambda at: _vectors(at, lambda lines: lines[0].update(vector=[0.0] * 1536)), "VECTORS_NOT_SOUND"),
}


@pytest.mark.parametrize(("spoil", "code"), SPOILT.values(), ids=SPOILT)
def test_invalid_artifacts_are_rejected_and_change_nothing(spoil: Spoil, code: str, folder: Path) -> None:
    spoil(folder)

    assert refusal_code(folder) == code
    assert not DocumentChunk.objects.exists()
    assert not Law.objects.exists()


class Watching(FolderSource):
    """Notes of each object that is read, what it is and in how many transactions."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.seen: list[tuple[str, int]] = []
        self._mine = connections["default"]  # the reading threads would have one each

    def read(self, key: str, most: int) -> bytes:
        self.seen.append((key.split("/")[0], len(self._mine.savepoint_ids)))
        return super().read(key, most)


def test_no_transaction_is_open_during_downloads(folder: Path) -> None:
    source, before = Watching(folder), len(connections["default"].savepoint_ids)

    artifact_import.import_artifacts(source, LAW)

    assert Counter(source.seen) == {("normalized", before): 2, ("chunks", before): len(TEXTS)}


def test_a_rejected_manifest_downloads_no_passage(folder: Path) -> None:
    artifact_import.import_artifacts(FolderSource(folder), LAW)
    Law.objects.update(version="2024-10")
    source = Watching(folder)

    with pytest.raises(ManifestRefused, match="OUTDATED"):
        artifact_import.import_artifacts(source, LAW)

    assert {kind for kind, _ in source.seen} == {"normalized"}


def test_the_command_continues_after_a_rejected_statute(folder: Path) -> None:
    out, err = StringIO(), StringIO()

    with pytest.raises(CommandError, match="1 of 2 statutes"):
        call_command("ingest_vectors", "NO_SUCH_LAW", LAW, folder=folder, stdout=out, stderr=err)

    assert out.getvalue() == "ISR_2024: 3 passages, 3 vectors\n"
    assert err.getvalue() == "NO_SUCH_LAW: MANIFEST_MISSING: There is no manifest of this statute.\n"
    shutil.rmtree(folder)
