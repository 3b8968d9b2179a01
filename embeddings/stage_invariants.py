"""Invariants of the embedding stages: chunks are complete, and each has its vector."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import connection

from documents import replacement_parses, stage_invariants
from documents.markdown.table_of_contents import find_contents
from embeddings import chunk_store, tokenizer, vector_store
from embeddings.embedders.registry import DIMENSIONS
from jobs.models import UploadJob
from jobs.pipeline import Invariant, all_invariants, sql_invariant

chunker_planned = all_invariants(
    stage_invariants.parse_stored,
    sql_invariant("""
        SELECT job_id, 'No chunker is chosen.' FROM upload_jobs
        WHERE job_id = ANY(%(jobs)s) AND chunks_version !~ '^.+@.+$'"""),
)

# Count, order and content: a chunk table that has the right number of wrong rows proves nothing.
_WHOLE = """
    SELECT j.job_id, CASE
        WHEN coalesce((j.progress ->> 'chunks_total')::int, 0) < 1 THEN 'The number of chunks is not recorded.'
        WHEN c.rows <> (j.progress ->> 'chunks_total')::int THEN 'There are more or fewer chunks than are recorded.'
        WHEN c.first <> 0 OR c.last <> c.rows - 1 THEN 'The chunks are not numbered without a gap.'
        ELSE 'A chunk''s text does not have its sha.' END
    FROM upload_jobs j
    CROSS JOIN LATERAL (
        SELECT count(*) AS rows, min(chunk_ord) AS first, max(chunk_ord) AS last,
               coalesce(bool_and(chunk_sha = encode(sha256(convert_to(text, 'UTF8')), 'hex')), false) AS sound
        FROM {table} t
        WHERE t.document_id = j.document_id AND t.chunker_name || '@' || t.chunker_version = j.chunks_version) c
    WHERE j.job_id = ANY(%(jobs)s) AND NOT (
        c.sound AND c.first = 0 AND c.last = c.rows - 1
        AND c.rows = coalesce((j.progress ->> 'chunks_total')::int, 0))"""
# The rows come first in each proof: they fail fast where a stage only asks whether its work is done already.
buffer_whole = sql_invariant(_WHOLE.format(table="document_chunk_buffer"))


def buffer_recounted(job_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Count each buffered chunk's tokens, and compare its text and the chunks' coverage with the parsed text.

    Reads the parsed text from its store: call outside of transactions.
    """
    reasons: dict[UUID, str] = {}
    for job in UploadJob.objects.filter(pk__in=job_ids).select_related("document"):
        if reason := recount(job, chunk_store.buffered_chunks(job.document_id)):
            reasons[job.pk] = reason
    return reasons


def recount(job: UploadJob, chunks: Iterable[tuple[str, Mapping[str, Any]]]) -> str | None:
    """Compare texts and metadata of chunks with the job's parsed text."""
    text, page_starts = replacement_parses.job_text(job)
    contents = find_contents(text, max(job.document.pages or 1, len(page_starts)))
    return chunks_violation(text, contents, chunks)


def chunks_violation(
    text: str, contents: Sequence[tuple[int, int]], chunks: Iterable[tuple[str, Mapping[str, Any]]]
) -> str | None:
    """``contents`` are the tables of contents, which may be in no chunk."""
    covered = 0
    for chunk, meta in chunks:
        start, end = meta["start"], meta["end"]
        spans = meta.get("title", (0, 0)), meta.get("header", (0, 0)), (start, end)
        if chunk != "".join(text[slice(*span)] for span in spans):
            return "A chunk's text does not stand at its offsets."
        if _is_left_out(text, covered, start, contents):
            return "Text between two chunks is in no chunk."
        if tokenizer.count_tokens(chunk) != meta["tokens"]:
            return "A chunk has another number of tokens than is recorded."
        covered = max(covered, end)
    return "Text after the last chunk is in no chunk." if _is_left_out(text, covered, len(text), contents) else None


def _is_left_out(text: str, start: int, end: int, contents: Sequence[tuple[int, int]]) -> bool:
    """Return whether text[start:end] has anything besides tables of contents."""
    at = bisect_right(contents, (start, end))
    for begin, stop in contents[max(at - 1, 0) : bisect_right(contents, (end, end))]:
        if text[start : max(begin, start)].strip():
            return True
        start = max(start, stop)
    return bool(text[start:end].strip())


chunks_buffered = all_invariants(buffer_whole, stage_invariants.parse_stored, buffer_recounted)
_committed = sql_invariant("""
    SELECT j.job_id, 'Chunks wait in the buffer for their commit.'
    FROM upload_jobs j
    WHERE j.job_id = ANY(%(jobs)s) AND EXISTS (
        SELECT 1 FROM document_chunk_buffer b LEFT JOIN document_chunks c USING (chunk_id)
        WHERE b.document_id = j.document_id AND b.chunker_name || '@' || b.chunker_version = j.chunks_version
          AND (c.chunk_sha IS DISTINCT FROM b.chunk_sha OR c.meta IS DISTINCT FROM b.meta))""")
chunks_committed = all_invariants(
    sql_invariant(_WHOLE.format(table="document_chunks")), _committed, stage_invariants.parse_stored
)

vectors_planned = all_invariants(
    chunks_committed,
    sql_invariant("""
        SELECT job_id, 'No model is chosen.' FROM upload_jobs
        WHERE job_id = ANY(%(jobs)s) AND (embed_model IS NULL OR embed_version IS NULL)"""),
)

# A campaign's re-embedding is for what is found today; all others are for every passage of their cut.
_COVERED = """
    SELECT j.job_id, '{reason}'
    FROM upload_jobs j LEFT JOIN active_models l ON l.user_id = j.user_id
    WHERE j.job_id = ANY(%(jobs)s) AND {applies_if} AND ({model_of}.embed_model IS NULL OR EXISTS (
        SELECT 1 FROM document_chunks c
        WHERE c.document_id = j.document_id AND c.chunker_name || '@' || c.chunker_version = j.chunks_version
          AND (j.pipeline <> 'reembed' OR c.embed_model IS NOT NULL)
          AND (c.embed_model IS DISTINCT FROM {model_of}.embed_model
               OR c.embed_version IS DISTINCT FROM {model_of}.embed_version)
          {and_not}))"""
_NOT_IN = """AND NOT EXISTS (
              SELECT 1 FROM {table} b WHERE b.chunk_id = c.chunk_id
                AND b.embed_model = {model_of}.embed_model AND b.embed_version = {model_of}.embed_version)"""


def _covered(*tables: str, model_of: str, reason: str, applies_if: str = "true") -> Invariant:
    """Require a vector of the model of ``model_of`` (j: the job's, l: the active one), committed or in ``tables``."""
    and_not = "".join(_NOT_IN.format(table=table, model_of=model_of) for table in tables)
    return sql_invariant(_COVERED.format(model_of=model_of, reason=reason, applies_if=applies_if, and_not=and_not))


def buffer_intact(job_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Compare every buffered vector with the sha that was written beside it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT job_id, document_id FROM upload_jobs WHERE job_id = ANY(%s)", [list(job_ids)])
        jobs = cursor.fetchall()
    reason, corrupt_ids = "A buffered vector does not have its sha.", vector_store.corrupt_ids
    return {job_id: reason for job_id, document in jobs if any(corrupt_ids(vector_store.BUFFERED, document=document))}


_CHOSEN, _LIVE = "A chunk has no vector of the planned model.", "A chunk has no vector of the active model."
buffer_covers = all_invariants(
    _covered("document_vector_buffer", "shadow_vectors", model_of="j", reason=_CHOSEN), buffer_intact
)
vectors_buffered = all_invariants(buffer_covers, vectors_planned)

# What makes passages findable. The words are written with the vectors, and one term has every passage: EVERY_CHUNK, or
# MERGED (embeddings.search.postings).
_live = _covered("shadow_vectors", model_of="l", reason=_LIVE)
_words = sql_invariant("""
    SELECT j.job_id, 'The BM25 postings are not those of the searchable chunks.'
    FROM upload_jobs j JOIN documents d USING (document_id)
    WHERE j.job_id = ANY(%(jobs)s) AND d.chunks_version IS NOT NULL
      AND (SELECT t.postings FROM document_terms t WHERE t.document_id = j.document_id AND t.term IN ('', E'\\x02'))
          IS DISTINCT FROM (
              SELECT string_agg(int4send(c.chunk_ord) || int2send(0::smallint), '' ORDER BY c.chunk_ord)
              FROM document_chunks c
              WHERE c.document_id = j.document_id AND c.embed_model IS NOT NULL)""")
_wide = sql_invariant(f"""
    SELECT j.job_id, 'A vector is not {DIMENSIONS} wide or has no length.'
    FROM upload_jobs j
    WHERE j.job_id = ANY(%(jobs)s) AND EXISTS (
        SELECT 1 FROM document_chunks c WHERE c.document_id = j.document_id AND c.embedding IS NOT NULL
          AND (vector_dims(c.embedding) <> {DIMENSIONS} OR NOT vector_norm(c.embedding) > 0))""")
_cut = sql_invariant("""
    SELECT j.job_id, 'The document is searched by the chunks of another chunker.'
    FROM upload_jobs j JOIN documents d USING (document_id)
    WHERE j.job_id = ANY(%(jobs)s) AND d.chunks_version IS DISTINCT FROM j.chunks_version""")
searchable = all_invariants(_cut, vectors_planned, _words, _wide)  # for statutes with refused chunks
vectors_committed = all_invariants(_cut, _live, vectors_planned, _words, _wide)

# A campaign's re-embedding.
target_chosen = all_invariants(
    stage_invariants.tenant_matches,
    sql_invariant("""
        SELECT job_id, 'No model is chosen.' FROM upload_jobs
        WHERE job_id = ANY(%(jobs)s) AND (embed_model IS NULL OR embed_version IS NULL)"""),
    sql_invariant("""
        SELECT job_id, 'The document was split again since.' FROM upload_jobs j JOIN documents d USING (document_id)
        WHERE j.job_id = ANY(%(jobs)s) AND d.chunks_version <> j.chunks_version"""),
)
target_planned = all_invariants(
    target_chosen,
    sql_invariant("""
        SELECT job_id, 'The number of vectors is not recorded.' FROM upload_jobs
        WHERE job_id = ANY(%(jobs)s) AND progress ->> 'embeds_total' IS NULL"""),
)
target_buffered = all_invariants(buffer_covers, target_planned)
# Once it is done, its tenant may have been cut over, rolled back or settled: then it answers for what is live.
shadow_vectors_committed = all_invariants(
    _covered("shadow_vectors", model_of="j", reason=_CHOSEN, applies_if="j.state <> 'done'"),
    _live,
    target_planned,
    stage_invariants.parse_stored,
    _words,
    _wide,
)
