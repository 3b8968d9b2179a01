"""The plan as a table: to jobs what urls.py is to requests. One row a stage."""

from __future__ import annotations

from documents import invariants as documents
from documents import stages as arriving
from embeddings import invariants as embeddings
from embeddings import reindex_jobs
from embeddings import stages as searchable
from embeddings.reindexing import stages as campaigns
from jobs.pipeline import Pipeline, Step
from jobs.states import Stage
from statutes import intake
from statutes import invariants as laws
from statutes import stages as normalizing

# fmt: off
INSURANCE = Pipeline("insurance", (
    #    stage                      handler                    proof: what is true here     seconds     done, %
    Step(Stage.QUEUED,              arriving.receive,          documents.tenant_matches,          time_limit=90),
    Step(Stage.JOB_VALIDATED,       arriving.request_parse,    documents.original_stored,          time_limit=360,  total_pct=10),
    Step(Stage.PARSING,             arriving.parse,            documents.parse_requested,         time_limit=960,  total_pct=15, skippable=True),
    Step(Stage.PARSED,              arriving.check_parse,      documents.parse_stored,            time_limit=60,   total_pct=45),
    Step(Stage.PARSE_VALIDATED,     searchable.plan_chunks,    documents.parse_stored,            time_limit=30,   total_pct=48),
    Step(Stage.CHUNKING,            searchable.buffer_chunks,  embeddings.chunker_planned,          time_limit=120,  total_pct=50, skippable=True),
    Step(Stage.CHUNKS_BUFFERED,     searchable.commit_chunks,  embeddings.chunks_buffered,         time_limit=120,  total_pct=60, skippable=True),
    Step(Stage.CHUNKED,             searchable.plan_vectors,   embeddings.chunks_committed,          time_limit=60,   total_pct=65),
    Step(Stage.EMBEDDING,           searchable.embed_chunks,          embeddings.vectors_planned,  time_limit=1800, total_pct=70, skippable=True),
    Step(Stage.EMBEDDINGS_BUFFERED, searchable.commit_vectors, embeddings.vectors_buffered, time_limit=300,  total_pct=95, skippable=True),
    Step(Stage.EMBEDDED,            searchable.finish_document,         embeddings.vectors_committed,         time_limit=60,   total_pct=99),
))

# Laws (spec 004): nothing of a version is found before it takes the place of the one before it, in its last stage.
STATUTE = Pipeline(intake.PIPELINE, (
    Step(Stage.QUEUED,              normalizing.receive,       laws.version_recorded,                  time_limit=600),
    Step(Stage.JOB_VALIDATED,       normalizing.choose_reader, laws.received,               time_limit=30,   total_pct=10),
    Step(Stage.PARSING,             normalizing.normalize,     laws.requested,              time_limit=960,  total_pct=15),
    Step(Stage.PARSED,              normalizing.check_parse,   laws.normalized,             time_limit=60,   total_pct=45),
    Step(Stage.PARSE_VALIDATED,     normalizing.plan_chunks,   laws.normalized,             time_limit=30,   total_pct=48),
    Step(Stage.CHUNKING,            searchable.buffer_chunks,  embeddings.chunker_planned,          time_limit=120,  total_pct=50, skippable=True),
    Step(Stage.CHUNKS_BUFFERED,     normalizing.commit_chunks, embeddings.chunks_buffered,         time_limit=120,  total_pct=60, skippable=True),
    Step(Stage.CHUNKED,             searchable.plan_vectors,   embeddings.chunks_committed,          time_limit=60,   total_pct=65),
    # Never passed over: what was refused before is noted, and is asked for again.
    Step(Stage.EMBEDDING,           normalizing.embed,         embeddings.vectors_planned,  time_limit=1800, total_pct=70),
    Step(Stage.EMBEDDINGS_BUFFERED, normalizing.verify_vectors, laws.vectors_buffered,       time_limit=300,  total_pct=95),
    Step(Stage.EMBEDDED,            normalizing.publish,       laws.embedded,               time_limit=900,  total_pct=97),
))

# A campaign's jobs (embeddings.moving): other vectors for the same passages, or other passages of the same parse.
REEMBED = Pipeline(reindex_jobs.REEMBED, (
    Step(Stage.CHUNKED,             searchable.plan_reembedding, embeddings.target_chosen,  time_limit=60),
    Step(Stage.EMBEDDING,           searchable.embed_chunks,          embeddings.target_planned,   time_limit=1800, total_pct=5,  skippable=True),
    Step(Stage.EMBEDDINGS_BUFFERED, searchable.commit_shadow_vectors,  embeddings.target_buffered,  time_limit=300,  total_pct=95, skippable=True),
    Step(Stage.EMBEDDED,            campaigns.finish_reindex_job,          embeddings.shadow_vectors_committed,         time_limit=300,  total_pct=99),
), campaigns_only=True)
RECHUNK = Pipeline(reindex_jobs.RECHUNK, (
    Step(Stage.PARSE_VALIDATED,     searchable.plan_rechunking, documents.parse_stored,           time_limit=30),
    Step(Stage.CHUNKING,            searchable.buffer_chunks,  embeddings.chunker_planned,          time_limit=120,  total_pct=5,  skippable=True),
    Step(Stage.CHUNKS_BUFFERED,     searchable.commit_chunks,  embeddings.chunks_buffered,         time_limit=120,  total_pct=20, skippable=True),
    Step(Stage.CHUNKED,             searchable.plan_vectors,   embeddings.chunks_committed,          time_limit=60,   total_pct=30),
    Step(Stage.EMBEDDING,           searchable.embed_chunks,          embeddings.vectors_planned,  time_limit=1800, total_pct=35, skippable=True),
    Step(Stage.EMBEDDINGS_BUFFERED, searchable.commit_vectors, embeddings.vectors_buffered, time_limit=300,  total_pct=95, skippable=True),
    Step(Stage.EMBEDDED,            campaigns.finish_reindex_job,          embeddings.vectors_committed,         time_limit=300,  total_pct=99),
), campaigns_only=True)
# fmt: on

PIPELINES = {plan.name: plan for plan in (INSURANCE, STATUTE, REEMBED, RECHUNK)}
