"""Job pipelines: for each stage its handler, the invariant that holds there, its time limit and its progress."""

import documents.parsers.pdf_parser
import documents.replacement_parses
import documents.stage_invariants
import documents.stages
import embeddings.models
import embeddings.reindexing.stages
import embeddings.stage_invariants
import embeddings.stages
import statutes.stage_invariants
import statutes.stages
from jobs.choices import Stage
from jobs.pipeline import Pipeline, Step
from statutes import intake

# A parse, and then one turn of OCR with its last batch (documents.ocr_batches).
PARSING_LIMIT = documents.parsers.pdf_parser.PARSE_SECONDS_MOST + 360

# joins_commit: the stage may share the commit of the one before it, while less than a second of work is unsaved. None
# does that buys, or whose handler begins with the rows of the stage before; the last one ends the job with the next claim.
# joins_batch: jobs that are queued at the stage may be claimed many at a time while they take no time.

# fmt: off
INSURANCE = Pipeline("insurance", (
    #    stage                      handler                                          invariant                                             seconds          done, %
    Step(Stage.QUEUED,              documents.stages.receive,                        documents.stage_invariants.tenant_matches,            time_limit=90),
    Step(Stage.JOB_VALIDATED,       documents.stages.request_parse,                  documents.stage_invariants.original_stored,           time_limit=360,  total_pct=10, joins_commit=True),
    Step(Stage.PARSING,             documents.stages.parse,                          documents.stage_invariants.parse_requested,           time_limit=PARSING_LIMIT, total_pct=15, skippable=True, joins_commit=True),
    Step(Stage.PARSED,              documents.stages.check_parse,                    documents.stage_invariants.parse_stored,              time_limit=60,   total_pct=45, joins_commit=True),
    Step(Stage.PARSE_VALIDATED,     embeddings.stages.plan_chunks,                   documents.stage_invariants.parse_stored,              time_limit=30,   total_pct=48, joins_commit=True),
    Step(Stage.CHUNKING,            embeddings.stages.buffer_chunks,                 embeddings.stage_invariants.chunker_planned,          time_limit=120,  total_pct=50, skippable=True, joins_commit=True),
    Step(Stage.CHUNKS_BUFFERED,     embeddings.stages.commit_chunks,                 embeddings.stage_invariants.chunks_buffered,          time_limit=120,  total_pct=60, skippable=True, joins_commit=True),
    Step(Stage.CHUNKED,             embeddings.stages.plan_vectors,                  embeddings.stage_invariants.chunks_committed,         time_limit=60,   total_pct=65, joins_commit=True),
    Step(Stage.EMBEDDING,           embeddings.stages.embed_chunks,                  embeddings.stage_invariants.vectors_planned,          time_limit=1800, total_pct=70, skippable=True),
    Step(Stage.EMBEDDINGS_BUFFERED, embeddings.stages.commit_vectors,                embeddings.stage_invariants.vectors_buffered,         time_limit=300,  total_pct=95, skippable=True, joins_commit=True),
    Step(Stage.EMBEDDED,            embeddings.stages.finish_document,               embeddings.stage_invariants.vectors_committed,        time_limit=60,   total_pct=99, joins_batch=True),
))

# Statutes (spec 004): a version is searchable from its last stage on, when it replaces the version before.
STATUTE = Pipeline(intake.PIPELINE, (
    Step(Stage.QUEUED,              statutes.stages.receive,                         statutes.stage_invariants.version_recorded,           time_limit=600),
    Step(Stage.JOB_VALIDATED,       statutes.stages.choose_reader,                   statutes.stage_invariants.received,                   time_limit=30,   total_pct=10),
    Step(Stage.PARSING,             statutes.stages.normalize,                       statutes.stage_invariants.requested,                  time_limit=960,  total_pct=15),
    Step(Stage.PARSED,              statutes.stages.check_parse,                     statutes.stage_invariants.normalized,                 time_limit=60,   total_pct=45),
    Step(Stage.PARSE_VALIDATED,     statutes.stages.plan_chunks,                     statutes.stage_invariants.normalized,                 time_limit=30,   total_pct=48),
    Step(Stage.CHUNKING,            embeddings.stages.buffer_chunks,                 embeddings.stage_invariants.chunker_planned,          time_limit=120,  total_pct=50, skippable=True),
    Step(Stage.CHUNKS_BUFFERED,     statutes.stages.commit_chunks,                   embeddings.stage_invariants.chunks_buffered,          time_limit=120,  total_pct=60, skippable=True),
    Step(Stage.CHUNKED,             embeddings.stages.plan_vectors,                  embeddings.stage_invariants.chunks_committed,         time_limit=60,   total_pct=65),
    # Never skipped: chunks that the vendor refused before are tried again.
    Step(Stage.EMBEDDING,           statutes.stages.embed,                           embeddings.stage_invariants.vectors_planned,          time_limit=1800, total_pct=70),
    Step(Stage.EMBEDDINGS_BUFFERED, statutes.stages.verify_vectors,                  statutes.stage_invariants.vectors_buffered,           time_limit=300,  total_pct=95),
    Step(Stage.EMBEDDED,            statutes.stages.publish,                         statutes.stage_invariants.embedded,                   time_limit=900,  total_pct=97),
))

# Jobs of a reindexing campaign: other vectors for the same chunks, other chunks of the same parse, or another parse.
REEMBED = Pipeline(embeddings.models.REEMBED, (
    Step(Stage.CHUNKED,             embeddings.stages.plan_vectors,                  embeddings.stage_invariants.target_chosen,            time_limit=60),
    Step(Stage.EMBEDDING,           embeddings.stages.embed_chunks,                  embeddings.stage_invariants.target_planned,           time_limit=1800, total_pct=5,  skippable=True),
    Step(Stage.EMBEDDINGS_BUFFERED, embeddings.stages.commit_shadow_vectors,         embeddings.stage_invariants.target_buffered,          time_limit=300,  total_pct=95, skippable=True, joins_commit=True),
    Step(Stage.EMBEDDED,            embeddings.reindexing.stages.finish_reindex_job, embeddings.stage_invariants.shadow_vectors_committed, time_limit=300,  total_pct=99),
), campaigns_only=True)
RECHUNK = Pipeline(embeddings.models.RECHUNK, (
    Step(Stage.PARSE_VALIDATED,     embeddings.stages.plan_rechunking,               documents.stage_invariants.parse_stored,              time_limit=30),
    Step(Stage.CHUNKING,            embeddings.stages.buffer_chunks,                 embeddings.stage_invariants.chunker_planned,          time_limit=120,  total_pct=5,  skippable=True, joins_commit=True),
    Step(Stage.CHUNKS_BUFFERED,     embeddings.stages.commit_chunks,                 embeddings.stage_invariants.chunks_buffered,          time_limit=120,  total_pct=20, skippable=True, joins_commit=True),
    Step(Stage.CHUNKED,             embeddings.stages.plan_vectors,                  embeddings.stage_invariants.chunks_committed,         time_limit=60,   total_pct=30, joins_commit=True),
    Step(Stage.EMBEDDING,           embeddings.stages.embed_chunks,                  embeddings.stage_invariants.vectors_planned,          time_limit=1800, total_pct=35, skippable=True),
    Step(Stage.EMBEDDINGS_BUFFERED, embeddings.stages.commit_vectors,                embeddings.stage_invariants.vectors_buffered,         time_limit=300,  total_pct=95, skippable=True, joins_commit=True),
    Step(Stage.EMBEDDED,            embeddings.reindexing.stages.finish_reindex_job, embeddings.stage_invariants.vectors_committed,        time_limit=300,  total_pct=99),
), campaigns_only=True)
REPARSE = Pipeline(documents.replacement_parses.REPARSE, (
    Step(Stage.JOB_VALIDATED,       documents.stages.request_parse,                  documents.stage_invariants.original_stored,           time_limit=360),
    Step(Stage.PARSING,             documents.stages.parse,                          documents.stage_invariants.parse_requested,           time_limit=PARSING_LIMIT, total_pct=5, skippable=True, joins_commit=True),
    Step(Stage.PARSED,              documents.stages.check_staged_parse,             documents.stage_invariants.parse_staged,              time_limit=60,   total_pct=20, joins_commit=True),
    Step(Stage.PARSE_VALIDATED,     embeddings.stages.plan_chunks,                   documents.stage_invariants.parse_staged,              time_limit=30,   total_pct=22, joins_commit=True),
    Step(Stage.CHUNKING,            embeddings.stages.buffer_chunks,                 embeddings.stage_invariants.chunker_planned,          time_limit=120,  total_pct=25, skippable=True, joins_commit=True),
    Step(Stage.CHUNKS_BUFFERED,     embeddings.stages.commit_chunks,                 embeddings.stage_invariants.chunks_buffered,          time_limit=120,  total_pct=30, skippable=True, joins_commit=True),
    Step(Stage.CHUNKED,             embeddings.stages.plan_vectors,                  embeddings.stage_invariants.chunks_committed,         time_limit=60,   total_pct=35, joins_commit=True),
    Step(Stage.EMBEDDING,           embeddings.stages.embed_chunks,                  embeddings.stage_invariants.vectors_planned,          time_limit=1800, total_pct=40, skippable=True),
    Step(Stage.EMBEDDINGS_BUFFERED, embeddings.reindexing.stages.commit_reparse,     embeddings.stage_invariants.vectors_buffered,         time_limit=300,  total_pct=95, skippable=True, joins_commit=True),
    Step(Stage.EMBEDDED,            embeddings.reindexing.stages.finish_reindex_job, embeddings.stage_invariants.vectors_committed,        time_limit=300,  total_pct=99),
), campaigns_only=True)
# fmt: on

PIPELINES = {plan.name: plan for plan in (INSURANCE, STATUTE, REEMBED, RECHUNK, REPARSE)}
