"""Validation of an import: each old row is accounted for, and its bytes, text, vectors and answers are the same."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import psycopg
from django.db import connection

from accounts.errors import ApiError
from documents import parse_store
from documents.models import Document
from documents.storage import buckets
from embeddings import active_model, embedding_calls
from embeddings.embedders import registry
from embeddings.search import hybrid_search
from jobs.choices import State as JobState
from jobs.models import UploadJob
from legacy import plan
from legacy.adoption import CHUNKS_VERSION
from legacy.column_mapping import OldMapping
from legacy.models import LegacyDocument
from legacy.old_bucket import OldBucket
from legacy.old_database import OldCatalog, OldChunk, OldDocument

QUESTION_WORDS, TOP = 12, 10
STAGE = "legacy_validation"  # of the purchases of questions
NEW_VECTORS = """
    SELECT chunk_ord, text, vector_send(embedding) FROM document_chunks
    WHERE document_id = %s AND chunker_name || '@' || chunker_version = %s ORDER BY chunk_ord"""


@dataclass(slots=True)
class Validation:
    """``findings`` are (old id, what is wrong); ``answers`` the share of the old top ten that the new one has."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[str, str]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        findings = [{"old_id": old_id, "finding": finding} for old_id, finding in self.findings]
        return {"counts": dict(self.counts), "findings": findings, "answers": self.answers}


def validate(catalog: OldCatalog, mapping: OldMapping, old_bucket: OldBucket, *, questions: int) -> Validation:
    """Compare the old system with what was imported of it; ask ``questions`` sampled questions in both."""
    validation = Validation()
    documents = catalog.documents(mapping.sections["documents"])
    while batch := list(islice(documents, plan.BATCH)):
        rows = LegacyDocument.objects.in_bulk([old.old_id for old in batch])
        chunks = catalog.chunks(mapping.sections["chunks"], list(rows)) if "chunks" in mapping.sections else {}
        for old in batch:
            row = rows.get(old.old_id)
            validation.counts[row.state if row else "unknown"] += 1
            for finding in _findings(old, row, old_bucket, chunks.get(old.old_id, [])):
                validation.findings.append((old.old_id, finding))
            if row and chunks.get(old.old_id) and len(validation.answers) < questions:
                validation.answers += _ask_both(catalog, mapping, row, chunks[old.old_id][0])
    return validation


def _findings(
    old: OldDocument, row: LegacyDocument | None, old_bucket: OldBucket, chunks: list[OldChunk]
) -> Iterator[str]:
    if row is None:
        yield "It was not imported."
        return
    if row.state == LegacyDocument.State.REFUSED:
        return
    document = Document.objects.in_bulk([row.document_id]).get(row.document_id) if row.document_id else None
    if document is None:
        yield "Its document was deleted here."
        return
    yield from _file_findings(old, row, document, old_bucket)
    job = UploadJob.objects.filter(pk=row.job_id).first() if row.job_id else None
    if row.job_id and (job is None or job.state != JobState.DONE):
        yield "Its job has not ended well."
    if row.mode == plan.ADOPT and row.job_id and document.chunks_version == CHUNKS_VERSION:
        if (old.text or "").encode() != parse_store.read_bytes(document):
            yield "Its text differs."
        if [(chunk.ord, chunk.text, chunk.vector) for chunk in chunks] != _new_chunks(document):
            yield "Its chunks or vectors differ."


def _file_findings(old: OldDocument, row: LegacyDocument, document: Document, old_bucket: OldBucket) -> Iterator[str]:
    bucket, name = buckets.locate(document.raw_path)
    try:
        former = hashlib.sha256(plan.read_content(old_bucket, old)).hexdigest()
    except ApiError:
        yield "Its old file can no longer be read."
        return
    if former != row.file_sha256:
        yield "Its old file has changed since; import again."
    if not bucket.exists(name) or hashlib.sha256(bucket.read(name)).hexdigest() != row.file_sha256:
        yield "Its bytes differ."


def _new_chunks(document: Document) -> list[tuple[int, str, bytes]]:
    connection.ensure_connection()
    with psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(NEW_VECTORS, [document.pk, CHUNKS_VERSION], binary=True)
        return [(ord_, text, bytes(vector)) for ord_, text, vector in cursor.fetchall()]


def _ask_both(
    catalog: OldCatalog, mapping: OldMapping, row: LegacyDocument, chunk: OldChunk
) -> Iterator[dict[str, Any]]:
    """Ask the first words of a chunk in both systems, by the same model; nothing where the tenant has another one."""
    if row.user_id is None or active_model.active_model(row.user_id).label != mapping.adopt_model:
        return
    embedder = registry.find_embedder(plan.model_of(mapping))
    if embedder is None:
        return
    question = " ".join(chunk.text.split()[:QUESTION_WORDS])
    vector = embedding_calls.embed_texts(embedder, [question], user_id=row.user_id, stage=STAGE)[0]
    text = f"[{','.join(map(str, vector.tolist()))}]"
    old_ids = catalog.nearest(mapping, row.user_id, text, TOP)
    ids = LegacyDocument.objects.filter(old_id__in=old_ids).exclude(document_id=None).values_list("document_id")
    expected = {document_id for (document_id,) in ids}
    passages = hybrid_search.search(user_id=row.user_id, query=question, k=TOP, mode=hybrid_search.VECTOR)
    retrieved = {passage.document_id for passage in passages}
    share = len(retrieved & expected) / len(expected) if expected else 1.0
    yield {
        "user_id": str(row.user_id),
        "old": sorted(map(str, expected)),
        "new": sorted(map(str, retrieved)),
        "share": round(share, 3),
    }
