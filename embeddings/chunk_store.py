"""Chunk storage: buffering by COPY, set-wise commit into document_chunks, querysets of a document's chunks."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet
from psycopg.types.json import Jsonb

from documents.deterministic_ids import chunk_id
from documents.models import Document
from embeddings import sentence_vectors
from embeddings.chunking.chunkers import NAME, VERSION, Chunk
from embeddings.models import ChunkBuffer, DocumentChunk
from jobs import services
from jobs.models import UploadJob

CHUNKS_VERSION = f"{NAME}@{VERSION}"
COPY = """COPY document_chunk_buffer
    (chunk_id, user_id, document_id, chunk_ord, chunker_name, chunker_version, chunk_sha, text, meta) FROM STDIN"""


def buffer_chunks(
    *, user_id: UUID, document_id: UUID, chunks: Sequence[Chunk], chunks_version: str = CHUNKS_VERSION
) -> None:
    """Write the chunks of one run of the chunker ``chunks_version``, in place of those of an earlier run."""
    name, _, version = chunks_version.partition("@")
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM document_chunk_buffer WHERE document_id = %s", [document_id])
        with cursor.copy(COPY) as copy:
            for chunk in chunks:
                sha = hashlib.sha256(chunk.text.encode()).hexdigest()
                pk = chunk_id(document_id, name, version, chunk.ord)
                copy.write_row((pk, user_id, document_id, chunk.ord, name, version, sha, chunk.text, Jsonb(chunk.meta)))


def buffered_chunks(document_id: UUID) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield text and citation of the document's buffered chunks, in order."""
    for chunk in ChunkBuffer.objects.filter(document_id=document_id).order_by("chunk_ord").iterator(200):
        yield chunk.text, chunk.meta or {}


# A chunk whose text changed under the same id loses its vector with its text; one that did not keeps both.
COMMIT = """
    INSERT INTO document_chunks AS c
        (chunk_id, user_id, document_id, chunker_name, chunker_version, chunk_ord, chunk_sha, text, meta)
    SELECT chunk_id, user_id, document_id, chunker_name, chunker_version, chunk_ord, chunk_sha, text, meta
    FROM document_chunk_buffer WHERE document_id = %(document)s
    ON CONFLICT (chunk_id) DO UPDATE SET
        chunk_sha = excluded.chunk_sha, text = excluded.text, meta = excluded.meta, updated_at = clock_timestamp(),
        embed_model = CASE WHEN c.chunk_sha = excluded.chunk_sha THEN c.embed_model END,
        embed_version = CASE WHEN c.chunk_sha = excluded.chunk_sha THEN c.embed_version END,
        vector_dim = CASE WHEN c.chunk_sha = excluded.chunk_sha THEN c.vector_dim END,
        vector_sha = CASE WHEN c.chunk_sha = excluded.chunk_sha THEN c.vector_sha END,
        embed_updated_at = CASE WHEN c.chunk_sha = excluded.chunk_sha THEN c.embed_updated_at END,
        embedding = CASE WHEN c.chunk_sha = excluded.chunk_sha THEN c.embedding END
    WHERE c.chunk_sha <> excluded.chunk_sha OR c.meta IS DISTINCT FROM excluded.meta"""
# Vectors of a text that is no longer there, or of an ordinal that is no longer used.
STALE = """
    DELETE FROM document_vector_buffer v WHERE v.document_id = %(document)s AND NOT EXISTS (
        SELECT 1 FROM document_chunk_buffer b JOIN document_chunks c USING (chunk_id)
        WHERE b.chunk_id = v.chunk_id AND b.chunk_sha = c.chunk_sha)"""
# The same of shadow vectors; those of another chunker's chunks are still searched.
STALE_SHADOWS = """
    DELETE FROM shadow_vectors v USING document_chunks c
    WHERE v.document_id = %(document)s AND c.chunk_id = v.chunk_id
      AND c.chunker_name || '@' || c.chunker_version = %(chunker)s AND NOT EXISTS (
        SELECT 1 FROM document_chunk_buffer b WHERE b.chunk_id = c.chunk_id AND b.chunk_sha = c.chunk_sha)"""
SURPLUS = """
    DELETE FROM document_chunks c
    WHERE c.document_id = %(document)s AND c.chunker_name || '@' || c.chunker_version = %(chunker)s
      AND NOT EXISTS (SELECT 1 FROM document_chunk_buffer b WHERE b.chunk_id = c.chunk_id)"""


def commit_chunks(document_id: UUID, *, chunks_version: str = CHUNKS_VERSION) -> None:
    """Bring ``document_chunks`` in line with the buffer; chunks of other chunkers are left alone."""
    with connection.cursor() as cursor:
        statements = ";".join((STALE, STALE_SHADOWS, COMMIT, SURPLUS))
        cursor.execute(statements, {"document": document_id, "chunker": chunks_version})


# Chunks of other chunkers: their vectors are deleted first, which refer to them.
OTHERS = """
    WITH others AS MATERIALIZED (
        SELECT chunk_id FROM document_chunks
        WHERE document_id = %(document)s AND chunker_name || '@' || chunker_version <> %(chunker)s)"""
REPLACED = (
    sentence_vectors.ENQUEUE,  # while the sentence vectors of the same texts are there to be copied
    f"{OTHERS} DELETE FROM shadow_vectors v USING others o WHERE v.chunk_id = o.chunk_id",
    f"{OTHERS} DELETE FROM document_vector_buffer v USING others o WHERE v.chunk_id = o.chunk_id",
    f"{OTHERS} DELETE FROM document_chunks c USING others o WHERE c.chunk_id = o.chunk_id",
    """UPDATE documents SET chunks_version = %(chunker)s, updated_at = clock_timestamp()
       WHERE document_id = %(document)s AND chunks_version IS DISTINCT FROM %(chunker)s""",
)


def replace_other_chunks(document_id: UUID, *, chunks_version: str) -> None:
    """Delete the chunks of other chunkers with their vectors, record the document's chunker, enqueue its sentences.

    Call inside the transaction that makes the new chunks searchable.
    """
    with connection.cursor() as cursor:
        params = sentence_vectors.enqueue_params() | {"document": document_id, "chunker": chunks_version}
        cursor.execute(";".join(REPLACED), params)


STAGED_ORDS = """
    SELECT chunk_ord FROM document_chunks
    WHERE document_id = %(document)s AND chunker_name || '@' || chunker_version = %(staged)s"""
# Staged chunks take the places of the document's own. One whose text is the same keeps its row and its vector, which
# vector indexes cover already.
PROMOTE = """
    INSERT INTO document_chunks AS c
        (chunk_id, user_id, document_id, chunker_name, chunker_version, chunk_ord, chunk_sha, text, meta,
         embed_model, embed_version, vector_dim, vector_sha, embed_updated_at, embedding)
    SELECT i.chunk_id, s.user_id, s.document_id, %(name)s, %(version)s, s.chunk_ord, s.chunk_sha, s.text, s.meta,
           s.embed_model, s.embed_version, s.vector_dim, s.vector_sha, s.embed_updated_at, s.embedding
    FROM document_chunks s JOIN unnest(%(ords)s::int[], %(ids)s::uuid[]) AS i (chunk_ord, chunk_id) USING (chunk_ord)
    WHERE s.document_id = %(document)s AND s.chunker_name || '@' || s.chunker_version = %(staged)s
    ON CONFLICT (chunk_id) DO UPDATE SET
        chunk_sha = excluded.chunk_sha, text = excluded.text, meta = excluded.meta, updated_at = clock_timestamp(),
        embed_model = excluded.embed_model, embed_version = excluded.embed_version, vector_dim = excluded.vector_dim,
        vector_sha = excluded.vector_sha, embedding = excluded.embedding,
        embed_updated_at = CASE WHEN c.vector_sha = excluded.vector_sha THEN c.embed_updated_at
                           ELSE excluded.embed_updated_at END
    WHERE c.meta IS DISTINCT FROM excluded.meta
       OR (c.chunk_sha, c.embed_model, c.embed_version)
          IS DISTINCT FROM (excluded.chunk_sha, excluded.embed_model, excluded.embed_version)"""
SURPLUS_ORDS = """
    DELETE FROM document_chunks
    WHERE document_id = %(document)s AND chunker_name = %(name)s AND chunker_version = %(version)s
      AND chunk_ord > ALL(%(ords)s)"""
# Of texts that were replaced; vectors of texts that stayed are live still.
STALE_SHADOWS_OF = """
    DELETE FROM shadow_vectors v USING document_chunks c, document_chunks s
    WHERE v.document_id = %(document)s AND c.chunk_id = v.chunk_id AND s.document_id = %(document)s
      AND s.chunker_name || '@' || s.chunker_version = %(staged)s AND s.chunk_ord = c.chunk_ord
      AND s.chunk_sha <> c.chunk_sha"""


def promote_chunks(document_id: UUID, *, staged: str, chunks_version: str) -> None:
    """Put the chunks of the label ``staged``, with their vectors, in the places of the document's chunks.

    Call inside the transaction that makes the new parse the document's.
    """
    name, _, version = chunks_version.partition("@")
    with connection.cursor() as cursor:
        cursor.execute(STAGED_ORDS, {"document": document_id, "staged": staged})
        ords = [number for (number,) in cursor.fetchall()]
        params: dict[str, Any] = {"document": document_id, "staged": staged, "name": name, "version": version}
        params |= {"ords": ords, "ids": [chunk_id(document_id, name, version, number) for number in ords]}
        cursor.execute(";".join((STALE_SHADOWS_OF, PROMOTE, SURPLUS_ORDS)), params)
    replace_other_chunks(document_id, chunks_version=chunks_version)


def document_chunks(document: Document) -> QuerySet[DocumentChunk]:
    """Return the chunks by which the document is found, without those that a campaign is still preparing."""
    version = document.chunks_version
    if version is None:  # not searchable yet: the chunks of its own job
        job = services.newest_job(UploadJob.objects.filter(document=document, campaign_id=None))
        version = job.chunks_version if job else ""
    name, _, number = version.partition("@")
    return DocumentChunk.objects.filter(document=document, chunker_name=name, chunker_version=number)


def page_chunks(document: Document, number: int) -> QuerySet[DocumentChunk]:
    """Return the document's chunks that stand wholly or partly on a page (from 1), in order."""
    chunks = document_chunks(document).filter(meta__pages__0__lte=number, meta__pages__1__gte=number)
    return chunks.order_by("chunk_ord").defer("embedding", "search")
