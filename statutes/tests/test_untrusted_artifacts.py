"""Untrusted artifacts and archives, consistent but forged."""

import hashlib
import io
import json
import struct
import tracemalloc
import zipfile
from typing import Any

import pytest

from documents.deterministic_ids import canonical_json
from embeddings.models import DocumentChunk
from statutes import artifact_import, document_ids
from statutes.artifact_import import BucketSource
from statutes.intake import IntakeStatus, accept_message
from statutes.readers import docx
from statutes.readers.xml_tree import Unreadable
from statutes.s3 import keys
from statutes.s3.manifests import ManifestRefused
from statutes.tests.sample_laws import BUCKET, RATE, TAXED, bucket_objects, law_xml, process, put_file, statute_message
from testing.fakes.s3 import S3Server

LAW = "LIVA"


def refusal_code() -> tuple[str, str]:
    with pytest.raises(ManifestRefused) as caught:
        artifact_import.import_artifacts(BucketSource(BUCKET), LAW)
    return caught.value.code, caught.value.detail


def known() -> list[tuple[Any, ...]]:
    return list(DocumentChunk.objects.order_by("pk").values_list("pk", "document_id", "text", "vector_sha"))


@pytest.mark.django_db
def test_vectors_with_one_changed_digit_are_not_imported(laws: S3Server) -> None:
    process(laws, law_xml(TAXED))
    before, key = known(), keys.vectors(LAW)
    lines = bucket_objects(laws, key)[key].decode()
    at = lines.index(".") + 1
    changed = lines[:at] + ("1" if lines[at] != "1" else "2") + lines[at + 1 :]
    put_file(laws, changed.encode(), key=key)

    assert refusal_code()[0] == "HASH_MISMATCH"
    assert known() == before


@pytest.mark.django_db
def test_a_passage_with_a_foreign_id_is_not_imported(laws: S3Server) -> None:
    process(laws, law_xml(RATE), law_id="LISR", raw_key="raw/lisr.xml")
    process(laws, law_xml(TAXED))
    before = known()
    other = str(DocumentChunk.objects.get(document_id=document_ids.document_id("LISR", "2024-01"), chunk_ord=0).pk)
    manifest = json.loads(bucket_objects(laws)[keys.manifest(LAW)])
    entry = manifest["chunks"][0]
    own = entry["chunk_id"]
    for fields in (entry, manifest["embeddings"]):
        content = bucket_objects(laws)[fields["key"]].replace(own.encode(), other.encode())
        put_file(laws, content, key=fields["key"])
        fields["sha256"] = hashlib.sha256(content).hexdigest()
    entry["chunk_id"] = other
    put_file(laws, canonical_json(manifest).encode(), key=keys.manifest(LAW))

    assert refusal_code()[0] == "VECTORS_NOT_SOUND"
    assert known() == before


@pytest.mark.django_db
def test_a_version_with_an_active_job_is_not_imported(laws: S3Server) -> None:
    process(laws, law_xml(TAXED))
    before = known()
    assert accept_message(statute_message(force_reprocess=True)).status == IntakeStatus.ACCEPTED

    assert refusal_code() == ("LAW_BUSY", "This version of the statute is being processed.")
    assert known() == before


UNPACKED = 24 << 20


def lying() -> bytes:
    """Return a DOCX of a few KB whose body claims 100 bytes, and has 24 MB."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr(docx.BODY, b" " * UNPACKED)
    return file.getvalue().replace(struct.pack("<L", UNPACKED), struct.pack("<L", 100))


def test_a_member_with_a_false_size_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docx, "LARGEST", 1 << 20)
    content = lying()
    tracemalloc.start()

    try:
        with pytest.raises(Unreadable):
            docx.read_docx(content)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(content) < 100_000
    assert peak < 4 << 20
