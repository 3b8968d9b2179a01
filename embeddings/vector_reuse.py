"""Reuse of known vectors: a text that was embedded once is not bought again (MVP context §10)."""

from dataclasses import dataclass, field
from decimal import Decimal
from uuid import UUID

from django.conf import settings
from django.db import connection

from embeddings import vector_store
from embeddings.chunk_batches import CHUNKS_OF_JOB, VECTOR_OF_CHUNK, query_params
from embeddings.embedders import Embedder
from embeddings.embedders.http_base import HttpEmbedder
from jobs.claims import Claim

# Subqueries, each with its LIMIT, instead of joins: whatever the planner believes about tables that fill in seconds, it
# can only probe an index chunk by chunk, and never reads a table whole.
BUFFERED = f"""
    (SELECT v.buffer_id FROM document_vector_buffer v WHERE {VECTOR_OF_CHUNK} LIMIT 1)"""
COMMITTED = """
    ((c.embed_model = %(model)s AND c.embed_version = %(version)s) IS TRUE)"""
IN_SHADOW = f"""
    ((SELECT v.chunk_id FROM shadow_vectors v WHERE {VECTOR_OF_CHUNK} LIMIT 1) IS NOT NULL)"""
WITHOUT_VECTOR = f"""
    FROM document_chunks c WHERE {CHUNKS_OF_JOB} AND NOT {COMMITTED} AND {BUFFERED} IS NULL AND NOT {IN_SHADOW}"""
# Chunks without a vector and their tokens; then the same when each text is bought once.
COUNT = f"""
    SELECT coalesce(sum(copies), 0), coalesce(sum(copies * tokens), 0), count(*), coalesce(sum(tokens), 0)
    FROM (SELECT count(*) AS copies, coalesce(max((c.meta ->> 'tokens')::int), 0) AS tokens {WITHOUT_VECTOR}
          GROUP BY c.chunk_sha) AS texts"""
INSERT = """
    INSERT INTO document_vector_buffer
        (user_id, document_id, chunk_id, embed_model, embed_version, vector_dim, vector_sha, embedding)"""
# Written so that they fit no index but the one that begins with the text's sha: as plain equalities the tenant, the
# model and the version fit the tenant's index as well, and a planner that takes the table for an empty one (autovacuum
# saw it so, or nobody has looked yet) finds it as cheap to read all of a tenant's chunks once per chunk.
SAME_TEXT_OF_TENANT = """s.chunk_sha = c.chunk_sha AND (s.chunk_sha, s.user_id, s.embed_model, s.embed_version)
            BETWEEN (c.chunk_sha, %(user)s, %(model)s, %(version)s)
            AND (c.chunk_sha, %(user)s, %(model)s, %(version)s)"""
SAME_TEXT = "s.chunk_sha = c.chunk_sha AND (s.embed_model = %(model)s AND s.embed_version = %(version)s) IS TRUE"
SAME_SHADOWED_TEXT_OF_TENANT = """s.chunk_sha = c.chunk_sha AND (s.chunk_sha, s.user_id)
            BETWEEN (c.chunk_sha, %(user)s) AND (c.chunk_sha, %(user)s)"""
SAME_SHADOWED_TEXT = "s.chunk_sha = c.chunk_sha"
COPY = f"""
    {INSERT}
    SELECT c.user_id, c.document_id, c.chunk_id, %(model)s, %(version)s, known.*
    FROM (SELECT c.user_id, c.document_id, c.chunk_id, c.chunk_sha {WITHOUT_VECTOR} OFFSET 0) c
    CROSS JOIN LATERAL (
        (SELECT s.vector_dim, s.vector_sha, s.embedding FROM document_chunks s
         WHERE {{live}} LIMIT 1)
        UNION ALL
        (SELECT v.* FROM document_chunks s CROSS JOIN LATERAL (
             SELECT v.vector_dim, v.vector_sha, v.embedding FROM shadow_vectors v
             WHERE v.chunk_id = s.chunk_id AND v.embed_model = %(model)s AND v.embed_version = %(version)s LIMIT 1) v
         WHERE {{shadowed}} LIMIT 1)
        LIMIT 1) known
    ON CONFLICT DO NOTHING"""
COPY_FROM_ALL = COPY.format(live=SAME_TEXT, shadowed=SAME_SHADOWED_TEXT)
COPY_FROM_TENANT = COPY.format(live=SAME_TEXT_OF_TENANT, shadowed=SAME_SHADOWED_TEXT_OF_TENANT)

# Only to chunks of the same chunker: another chunker's may not be meant to be found yet.
COPY_TO_DUPLICATES = f"""
    WITH own AS MATERIALIZED (
        SELECT c.chunk_id, c.user_id, c.document_id, c.chunker_name, c.chunker_version, c.chunk_sha,
               {COMMITTED} AS committed, {BUFFERED} AS buffer_id, {IN_SHADOW} AS in_shadow
        FROM document_chunks c WHERE c.document_id = %(document)s),
    known AS MATERIALIZED (
        SELECT DISTINCT ON (chunker_name, chunker_version, chunk_sha) *
        FROM own WHERE committed OR in_shadow OR buffer_id IS NOT NULL
        ORDER BY chunker_name, chunker_version, chunk_sha, chunk_id)
    {INSERT}
    SELECT o.user_id, o.document_id, o.chunk_id, %(model)s, %(version)s, v.*
    FROM own o JOIN known k USING (chunker_name, chunker_version, chunk_sha)
    CROSS JOIN LATERAL (
        (SELECT vector_dim, vector_sha, embedding FROM document_vector_buffer WHERE buffer_id = k.buffer_id LIMIT 1)
        UNION ALL
        (SELECT vector_dim, vector_sha, embedding FROM document_chunks
         WHERE chunk_id = k.chunk_id AND k.committed LIMIT 1)
        UNION ALL
        (SELECT vector_dim, vector_sha, embedding FROM shadow_vectors
         WHERE chunk_id = k.chunk_id AND embed_model = %(model)s AND embed_version = %(version)s LIMIT 1)
        LIMIT 1) v
    WHERE NOT (o.committed OR o.in_shadow) AND o.buffer_id IS NULL
    ON CONFLICT DO NOTHING"""


@dataclass(frozen=True, slots=True)
class Reused:
    """Chunks that need not be bought, their tokens and price. ``copied`` of them got their vector just now."""

    passages: int
    tokens: int
    cents: Decimal
    copied: int = field(default=0, compare=False)


def reuse_vectors(claim: Claim, embedder: Embedder) -> Reused:
    """Buffer the vectors that the embedder's model made earlier of the same texts. Call inside ``claim.transaction()``.

    The same text means the same chunk_sha: chunks are cut from normalized markdown, so that line ends, blank lines and
    kinds of spaces make no difference. It is looked up among the tenant's own chunks, or among all where
    REUSE_ACROSS_TENANTS says so. A copy belongs to the new document: it stays when its source is deleted. Chunks that
    repeat a text of their own document count as saved too; ``copy_to_duplicates`` gives them their vectors.
    """
    params = query_params(claim, embedder)
    with connection.cursor() as cursor:
        cursor.execute(COUNT, params)
        passages, tokens, texts, left = cursor.fetchone()
        without_vector = passages
        cursor.execute(COPY_FROM_ALL if settings.REUSE_ACROSS_TENANTS else COPY_FROM_TENANT, params)
        if cursor.rowcount:  # a stored vector that was damaged since is made anew, not copied
            vector_store.delete_corrupt_vectors(claim.job.document_id)
            cursor.execute(COUNT, params)
            without_vector, _, texts, left = cursor.fetchone()
    saved_passages, saved_tokens = int(passages - texts), int(tokens - left)
    plan = claim.job.payload
    if (plan.get("embed_model"), plan.get("embed_version")) == (embedder.model, embedder.version):
        # Planned again: what the first plan copied is saved still.
        saved_passages = max(saved_passages, plan.get("reused", 0))
        saved_tokens = max(saved_tokens, plan.get("tokens_saved", 0))
    cents = embedder.cents(saved_tokens) if isinstance(embedder, HttpEmbedder) else Decimal(0)
    return Reused(saved_passages, saved_tokens, cents, copied=max(0, int(passages - without_vector)))


def copy_to_duplicates(document_id: UUID, model: str, version: str) -> None:
    """Buffer a copy for each chunk whose text has the model's vector elsewhere in the document."""
    with connection.cursor() as cursor:
        cursor.execute(COPY_TO_DUPLICATES, {"document": document_id, "model": model, "version": version})
