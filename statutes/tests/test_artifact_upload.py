"""Artifacts of a law: all or none, the same bytes each time, none of another version."""

import contextlib
import hashlib
import json
import re
import tracemalloc
from typing import Any

import numpy
import pytest

from embeddings import vector_store
from embeddings.embedders import registry
from embeddings.embedders.registry import EmbeddingModel
from embeddings.models import DocumentChunk
from jobs.models import UploadJob
from statutes import failed_versions
from statutes.models import LawVersion
from statutes.s3 import artifact_upload, keys
from statutes.s3 import client as objects
from statutes.s3.artifact_upload import spool_artifacts
from statutes.tests.artifact_factories import (
    BUCKET,
    CHUNKER,
    TEXTS,
    InterruptibleS3Server,
    create_version,
    read_whole_law,
    stored_objects,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("s3")]
LAW = "ISR_2024"


def test_objects_have_the_keys_of_the_spec() -> None:
    version = create_version()

    artifact_upload.upload_artifacts(version)

    chunk_ids = [str(pk) for pk in DocumentChunk.objects.order_by("chunk_ord").values_list("pk", flat=True)]
    assert sorted(stored_objects()) == sorted(
        [
            "normalized/ISR_2024/law.json",
            "normalized/ISR_2024/manifest.json",
            "embeddings/ISR_2024_vectors.jsonl",
            *(f"chunks/ISR_2024/{chunk_id}.json" for chunk_id in chunk_ids),
        ]
    )
    assert read_whole_law(LAW) == "2024-01"


def test_vectors_are_exact_and_in_the_order_of_passages() -> None:
    version = create_version()

    artifact_upload.upload_artifacts(version)

    lines = [json.loads(line) for line in stored_objects()["embeddings/ISR_2024_vectors.jsonl"].splitlines()]
    manifest = json.loads(stored_objects()["normalized/ISR_2024/manifest.json"])
    archived = numpy.array([line["vector"] for line in lines], dtype=numpy.float32)
    assert [line["chunk_id"] for line in lines] == [chunk["chunk_id"] for chunk in manifest["chunks"]]
    assert archived.tobytes() == registry.get_embedder("testing.embedders.InstantEmbedder").embed(TEXTS).tobytes()
    assert {tuple(line) for line in lines} == {("chunk_id", "vector", "law_id", "metadata")}
    assert lines[1]["metadata"]["headings"] == ["Título I"]
    assert manifest["model"] == {"name": "instant", "version": "1", "dimensions": 1536}
    assert (manifest["reader"], manifest["chunker"], manifest["missing"]) == ("law-xml@1", CHUNKER, [])


def test_committed_vectors_give_the_same_bytes_as_buffered_ones() -> None:
    version = create_version()
    artifact_upload.upload_artifacts(version)
    before = stored_objects()

    vector_store.commit_vectors(version.pk, EmbeddingModel("instant", "1"))
    artifact_upload.upload_artifacts(version)

    assert stored_objects() == before


def test_a_passage_object_has_its_text_and_place() -> None:
    version = create_version()

    artifact_upload.upload_artifacts(version)

    chunk = DocumentChunk.objects.get(chunk_ord=1)
    passage = json.loads(stored_objects()[keys.chunk(LAW, chunk.pk)])
    assert (passage["chunk_id"], passage["chunk_text"], passage["ord"]) == (str(chunk.pk), TEXTS[1], 1)
    assert passage["chunk_meta"] == chunk.meta


def test_a_refused_passage_is_kept_and_named_as_missing() -> None:
    version = create_version(refused=[1])

    artifact_upload.upload_artifacts(version)

    manifest = json.loads(stored_objects()["normalized/ISR_2024/manifest.json"])
    assert manifest["missing"] == [manifest["chunks"][1]["chunk_id"]]
    assert (manifest["chunk_count"], manifest["embeddings"]["count"]) == (3, 2)
    assert read_whole_law(LAW) == "2024-01"


def test_the_manifest_is_written_last(s3: InterruptibleS3Server) -> None:
    version = create_version()
    s3.ledger.clear()

    artifact_upload.upload_artifacts(version)

    written = [route for route in s3.ledger.counts if route.startswith("PUT")]
    assert written[-1] == "PUT /laws/normalized/ISR_2024/manifest.json"
    assert len(written) == 6


def test_the_returned_digest_is_that_of_the_manifest() -> None:
    version = create_version()

    digest = artifact_upload.upload_artifacts(version)

    assert digest == hashlib.sha256(stored_objects()["normalized/ISR_2024/manifest.json"]).hexdigest()


NEWER = ("Artículo 1. El impuesto ya no se paga.",)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2025-01", "2024-01"], ids=["of a newer version", "of the same version, forced"])
def test_a_crash_at_any_write_leaves_one_complete_law(version: str, s3: InterruptibleS3Server) -> None:
    artifact_upload.upload_artifacts(create_version(texts=TEXTS[:2]))
    before = stored_objects()
    replacement = _replacement(version)
    artifact_upload.upload_artifacts(replacement)
    after = tags(s3)
    seen: list[bool] = []

    while True:
        _restore(before, s3)
        s3.left = len(seen)
        try:
            artifact_upload.upload_artifacts(replacement)
            break
        except OSError:
            s3.left = None
        seen.append(_found())
        artifact_upload.upload_artifacts(replacement)
        assert tags(s3) == after, seen

    assert seen == [False] * seen.index(True) + [True] * seen.count(True)  # from the manifest on it is the new one
    assert seen.index(True) >= 7
    assert tags(s3) == after


def tags(s3: InterruptibleS3Server) -> dict[str, str]:
    """Return what stands for the content of each object."""
    with contextlib.closing(s3.client()) as client:
        return {each["Key"]: each["ETag"] for each in client.list_objects_v2(Bucket=BUCKET).get("Contents", [])}


def _replacement(version: str) -> LawVersion:
    newer = create_version(version=version, texts=NEWER)
    newer.canonical = {"title": f"Ley {version}", "articles": list(NEWER)}
    newer.save()
    return newer


def _found() -> bool:
    """Tell whether the law that is found now is the new one; whichever it is, it is whole."""
    read_whole_law(LAW)
    manifest = artifact_upload.read_current_manifest(BUCKET, LAW)
    assert manifest
    return len(manifest.chunks) == len(NEWER)


def _restore(content: dict[str, bytes], s3: InterruptibleS3Server) -> None:
    now = tags(s3)
    for key in now.keys() - content.keys():
        objects.delete_object(BUCKET, key)
    for key, body in content.items():
        if now.get(key) != f'"{hashlib.md5(body).hexdigest()}"':
            objects.put_object(BUCKET, key, body)


def test_objects_of_another_law_are_not_touched() -> None:
    artifact_upload.upload_artifacts(create_version("A"))
    artifact_upload.upload_artifacts(create_version("A.B"))
    before = stored_objects("chunks/A.B/")

    artifact_upload.upload_artifacts(create_version("A", "2030", texts=NEWER))

    assert stored_objects("chunks/A.B/") == before
    assert read_whole_law("A.B") == "2024-01"


@pytest.mark.parametrize(
    "law_id", ["..", "../../etc", "a/b", "ley 1º ñ", "a%2Fb", "x" * 3_000, "~", "", "¿?&=#", ".hidden", "a\nb"]
)
def test_no_law_id_escapes_its_folder(law_id: str) -> None:
    version = create_version(law_id, "../1")

    artifact_upload.upload_artifacts(version)

    folder = keys.quote_name(law_id)
    assert re.fullmatch(r"[A-Za-z0-9_%~-][A-Za-z0-9._%~-]{0,199}", folder)
    assert {key.split("/")[1].removesuffix("_vectors.jsonl") for key in stored_objects()} == {folder}
    assert read_whole_law(law_id) == "../1"


def test_different_law_ids_have_different_folders() -> None:
    strange = ["a/b", "a%2Fb", "a~b", "a%7Eb", ".", "%2E", "..", "%2E.", "x" * 300, "x" * 301, "A", "a", "", "%"]

    assert len({keys.quote_name(each) for each in strange}) == len(strange)


def test_memory_does_not_grow_with_the_law() -> None:
    def peak(passages: int) -> int:
        version = create_version(
            f"big-{passages}", texts=[f"Artículo {at}. {'palabra ' * 50}" for at in range(passages)]
        )
        job = UploadJob.objects.get(document_id=version.pk)
        tracemalloc.start()
        with spool_artifacts(version, job):
            _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    small, large = peak(100), peak(400)

    assert large < small * 1.3


# What failed


def test_a_failed_file_is_archived_with_its_error() -> None:
    version = create_version()
    objects.put_object(BUCKET, version.raw_key, b"<broken")

    failed_versions.archive_failure(
        version, {"code": "NOT_XML", "detail": "The file is not well-formed XML.", "stage": "parsing"}
    )

    archived = stored_objects("failed/")
    record = json.loads(archived["failed/ISR_2024/2024-01/error.json"])
    assert archived["failed/ISR_2024/2024-01/2024-01.xml"] == b"<broken"
    assert (record["code"], record["stage"], record["raw"]) == (
        "NOT_XML",
        "parsing",
        "failed/ISR_2024/2024-01/2024-01.xml",
    )


def test_a_raw_file_of_another_bucket_or_of_none_is_archived_too(settings: Any) -> None:
    settings.STATUTES_RAW_BUCKETS = ["elsewhere"]
    version = create_version()
    version.bucket, version.raw_key = "elsewhere", "error.json"
    objects.put_object("elsewhere", "error.json", b"raw")

    failed_versions.archive_failure(version, {"code": "X", "detail": ""})
    archived = stored_objects("failed/")
    version.raw_key = "gone.pdf"
    failed_versions.archive_failure(version, {"code": "RAW_FILE_MISSING", "detail": ""})

    assert archived["failed/ISR_2024/2024-01/raw.error.json"] == b"raw"
    assert json.loads(stored_objects("failed/")["failed/ISR_2024/2024-01/error.json"])["raw"] is None


def test_a_later_failure_replaces_the_archive_of_an_earlier_one() -> None:
    version, beside = create_version(), "failed/ISR_2024/2024-01.1/raw.xml"
    objects.put_object(BUCKET, beside, b"another version's")
    for key in ("raw/first.xml", "raw/second.docx"):
        objects.put_object(BUCKET, key, key.encode())
        version.raw_key = key
        failed_versions.archive_failure(version, {"code": "NOT_XML", "detail": ""})

    archived = stored_objects("failed/")

    record = json.loads(archived["failed/ISR_2024/2024-01/error.json"])
    assert set(archived) == {beside, record["raw"], "failed/ISR_2024/2024-01/error.json"}
    assert archived[record["raw"]] == b"raw/second.docx"
