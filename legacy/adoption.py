"""Adoption of an old document: its parse, chunks and vectors become those of a finished job."""

import hashlib
from uuid import UUID

from django.db import connection
from psycopg.types.json import Jsonb

from accounts.errors import ErrorCode
from documents import deterministic_ids, parse_store
from documents.models import Document
from documents.parse_store import ParseResult
from documents.parsers.registry import Parser
from documents.services import PIPELINE
from documents.storage import buckets
from embeddings import active_model, chunk_store, tokenizer
from embeddings.embedders.registry import DIMENSIONS, EmbeddingModel, vector_sha
from embeddings.search import bm25
from embeddings.vector_store import decode_vector
from jobs import pipeline, services, telemetry
from jobs.models import UploadJob
from legacy import error_codes
from legacy.plan import Verdict, locate_chunks

CHUNKER_NAME, CHUNKER_VERSION = "legacy", "1"
CHUNKS_VERSION = f"{CHUNKER_NAME}@{CHUNKER_VERSION}"
PARSER = Parser("legacy", "1")
COLUMNS = {
    "chunk_id": "uuid", "user_id": "uuid", "document_id": "uuid", "chunker_name": "text", "chunker_version": "text",
    "chunk_ord": "int4", "chunk_sha": "text", "text": "text", "meta": "jsonb", "embed_model": "text",
    "embed_version": "text", "vector_dim": "int4", "vector_sha": "text", "embed_updated_at": "timestamptz",
    "embedding": "bytea",  # already as pgvector receives it
}  # fmt: skip
COPY = f"COPY document_chunks ({', '.join(COLUMNS)}) FROM STDIN (FORMAT binary)"


class NotAdoptable(Exception):
    """The document must be reingested. ``code`` says why."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


def adopt_document(document: Document, verdict: Verdict, model: EmbeddingModel) -> UploadJob:
    """Make a stored document searchable by its old chunks, in the caller's transaction; return its finished job.

    Raises ``NotAdoptable``: roll back to a savepoint before it.
    """
    if not active_model.confirm_active_model(document.user_id, model):
        raise NotAdoptable(error_codes.MODEL_NOT_ACTIVE)
    parse = ParseResult(PARSER, verdict.old.text or "", page_starts=())
    path = parse_store.own_path(document)
    bucket, name = buckets.locate(path)
    bucket.put(name, parse.content)
    fields = parse_store.record_parse(document, parse, path)
    _copy_chunks(document, verdict, model)
    count = len(verdict.chunks)
    chunk_store.replace_other_chunks(document.pk, chunks_version=CHUNKS_VERSION)
    bm25.index_document(document.pk)
    fields["progress"] = dict.fromkeys(("chunks_total", "chunks_done", "embeds_total", "embeds_done"), count)
    job = services.record_finished(
        pipeline=PIPELINE,
        user_id=document.user_id,
        document_id=document.pk,
        raw_path=document.raw_path,
        chunks_version=CHUNKS_VERSION,
        embed_model=model.model,
        embed_version=model.version,
        low_priority=True,
        correlation_id=telemetry.correlation_id(),
        **fields,
    )
    if pipeline.get_pipeline(PIPELINE).steps[-1].invariant([job.pk]):
        raise NotAdoptable(error_codes.ADOPTION_NOT_SOUND)
    return job


def _copy_chunks(document: Document, verdict: Verdict, model: EmbeddingModel) -> None:
    text, chunks = verdict.old.text or "", verdict.chunks
    tokens = tokenizer.count_many([chunk.text for chunk in chunks])
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
        with cursor.copy(COPY) as copy:
            copy.set_types(list(COLUMNS.values()))
            for chunk, start, count in zip(chunks, locate_chunks(text, chunks), tokens, strict=True):
                pages = [chunk.page, chunk.page] if chunk.page else [1, verdict.pages]
                meta = {"start": start, "end": start + len(chunk.text), "pages": pages, "headings": [], "tokens": count}
                chunk_id: UUID = deterministic_ids.chunk_id(document.pk, CHUNKER_NAME, CHUNKER_VERSION, chunk.ord)
                sha = hashlib.sha256(chunk.text.encode()).hexdigest()
                vector = chunk.vector or b""
                copy.write_row((
                    chunk_id, document.user_id, document.pk, CHUNKER_NAME, CHUNKER_VERSION, chunk.ord, sha, chunk.text,
                    Jsonb(meta), model.model, model.version, DIMENSIONS, vector_sha(decode_vector(vector)), now, vector,
                ))  # fmt: skip
