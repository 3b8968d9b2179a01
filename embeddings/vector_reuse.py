"""Vectors that are there already: text that was embedded once is not bought again (MVP context §10)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from uuid import UUID

from django.conf import settings
from django.db import connection

from embeddings import pending_chunks, vector_store
from embeddings.embedders import Embedder
from embeddings.embedders.http_base import HttpEmbedder
from embeddings.pending_chunks import CHUNKS_OF_JOB, VECTOR_OF_CHUNK
from jobs.claims import Claim

# Subqueries, each with its LIMIT, instead of joins: whatever the planner believes about tables that fill in seconds, it
# can only probe an index passage by passage, and never reads a table whole.
BUFFERED = f"""
    (SELECT v.buffer_id FROM document_vector_buffer v WHERE {VECTOR_OF_CHUNK} LIMIT 1)"""
COMMITTED = """
    ((c.embed_model = %(model)s AND c.embed_version = %(version)s) IS TRUE)"""
BESIDE = f"""
    ((SELECT v.chunk_id FROM shadow_vectors v WHERE {VECTOR_OF_CHUNK} LIMIT 1) IS NOT NULL)"""
LACKING = f"""
    FROM document_chunks c WHERE {CHUNKS_OF_JOB} AND NOT {COMMITTED} AND {BUFFERED} IS NULL AND NOT {BESIDE}"""
# All that lack a vector, and what is left to buy when each text is bought once.
COUNT = f"""
    SELECT coalesce(sum(copies), 0), coalesce(sum(copies * tokens), 0), count(*), coalesce(sum(tokens), 0)
    FROM (SELECT count(*) AS copies, coalesce(max((c.meta ->> 'tokens')::int), 0) AS tokens {LACKING}
          GROUP BY c.chunk_sha) AS texts"""
INSERT = """
    INSERT INTO document_vector_buffer
        (user_id, document_id, chunk_id, embed_model, embed_version, vector_dim, vector_sha, embedding)"""
# Written so that they fit no index but the one that begins with the text's sha: as plain equalities the tenant, the
# model and the version fit the tenant's index as well, and a planner that takes the table for an empty one (autovacuum
# saw it so, or nobody has looked yet) finds it as cheap to read all of a tenant's passages once a passage.
OF_TENANT = """s.chunk_sha = c.chunk_sha AND (s.chunk_sha, s.user_id, s.embed_model, s.embed_version)
            BETWEEN (c.chunk_sha, %(user)s, %(model)s, %(version)s)
            AND (c.chunk_sha, %(user)s, %(model)s, %(version)s)"""
OF_ALL = "s.chunk_sha = c.chunk_sha AND (s.embed_model = %(model)s AND s.embed_version = %(version)s) IS TRUE"
SHADOWED_OF_TENANT = """s.chunk_sha = c.chunk_sha AND (s.chunk_sha, s.user_id)
            BETWEEN (c.chunk_sha, %(user)s) AND (c.chunk_sha, %(user)s)"""
SHADOWED_OF_ALL = "s.chunk_sha = c.chunk_sha"
COPY = f"""
    {INSERT}
    SELECT c.user_id, c.document_id, c.chunk_id, %(model)s, %(version)s, known.*
    FROM (SELECT c.user_id, c.document_id, c.chunk_id, c.chunk_sha {LACKING} OFFSET 0) c
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
COPY_ALL = COPY.format(live=OF_ALL, shadowed=SHADOWED_OF_ALL)
COPY_OWN = COPY.format(live=OF_TENANT, shadowed=SHADOWED_OF_TENANT)

# Only to passages of the same chunker: another chunker's may not be meant to be found yet.
SPREAD = f"""
    WITH own AS MATERIALIZED (
        SELECT c.chunk_id, c.user_id, c.document_id, c.chunker_name, c.chunker_version, c.chunk_sha,
               {COMMITTED} AS committed, {BUFFERED} AS buffer_id, {BESIDE} AS beside
        FROM document_chunks c WHERE c.document_id = %(document)s),
    known AS MATERIALIZED (
        SELECT DISTINCT ON (chunker_name, chunker_version, chunk_sha) *
        FROM own WHERE committed OR beside OR buffer_id IS NOT NULL
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
    WHERE NOT (o.committed OR o.beside) AND o.buffer_id IS NULL
    ON CONFLICT DO NOTHING"""


@dataclass(frozen=True, slots=True)
class Reused:
    """What need not be bought: passages, their tokens, and what these would have cost.

    ``taken`` are the passages that have a vector by now and had none before.
    """

    passages: int
    tokens: int
    cents: Decimal
    taken: int = field(default=0, compare=False)


def reuse_vectors(claim: Claim, embedder: Embedder) -> Reused:
    """Buffer the vectors that the embedder's model made earlier of the same texts. Call inside ``held()``.

    The same text means the same chunk_sha: the passage's text, which is cut from normalized markdown, so that
    line ends, blank lines and kinds of spaces make no difference. It is looked for among the tenant's own passages, or
    among everybody's where REUSE_ACROSS_TENANTS says so. A copy is the new document's own: it stays when its source is
    deleted. Passages that repeat a text of their own document count as saved too; ``spread`` gives them their vectors.
    """
    params = pending_chunks.query_params(claim, embedder)
    with connection.cursor() as cursor:
        cursor.execute(COUNT, params)
        passages, tokens, texts, left = cursor.fetchone()
        lacking = passages
        cursor.execute(COPY_ALL if settings.REUSE_ACROSS_TENANTS else COPY_OWN, params)
        if cursor.rowcount:  # a stored vector that was damaged since is made anew, not spread
            vector_store.delete_corrupt_vectors(claim.job.document_id)
            cursor.execute(COUNT, params)
            lacking, _, texts, left = cursor.fetchone()
    saved = _at_least(claim, embedder, int(passages - texts), int(tokens - left))
    return replace(saved, taken=max(0, int(passages - lacking)))


def copy_to_duplicates(document_id: UUID, model: str, version: str) -> None:
    """Buffer a copy for each passage whose text has the model's vector elsewhere in the document."""
    with connection.cursor() as cursor:
        cursor.execute(SPREAD, {"document": document_id, "model": model, "version": version})


def _at_least(claim: Claim, embedder: Embedder, passages: int, tokens: int) -> Reused:
    """Planned again, a document still has what the first plan took for it."""
    plan = claim.job.payload
    if (plan.get("embed_model"), plan.get("embed_version")) == (embedder.model, embedder.version):
        passages, tokens = max(passages, plan.get("reused", 0)), max(tokens, plan.get("tokens_saved", 0))
    cents = embedder.cents(tokens) if isinstance(embedder, HttpEmbedder) else Decimal(0)
    return Reused(passages, tokens, cents)
