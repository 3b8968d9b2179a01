"""Rate of committing vectors to the search tables, against the same rows under one HNSW index over all tenants."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

from django.db import transaction

from benchmarks import database
from benchmarks.baselines import shared_index
from benchmarks.report import Result, print_progress
from embeddings import active_model, vector_store
from embeddings.embedders.registry import Vectors
from embeddings.models import DocumentChunk
from embeddings.search import bm25
from testing.factories import vectors as stored
from testing.factories.pending_documents import create_chunked_job, passage_texts
from testing.factories.vectors import LIVE_MODEL

SUMMARY = __doc__
GOAL = 1_000.0
PASSAGES, DOCUMENTS = 100, 5  # of a document, of a tenant: far below the switch-over
WORDS = 100
TABLES = ("document_chunks", "document_vector_buffer", "document_terms")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--vectors", type=int, default=10_000)


@dataclass(frozen=True)
class ChunkedDocument:
    """A document whose passages are there and wait for vectors."""

    user_id: UUID
    document_id: UUID
    chunk_ids: Sequence[UUID]


def measure(options: Namespace) -> Result:
    count = 100 if options.quick else options.vectors
    rows = stored.generate_vectors(PASSAGES)
    ours, words = _rates(_create_chunked(count), rows)
    print_progress(f"{ours:.0f} vectors a second, {words:.0f} with their words")
    few = _create_chunked(max(count // 10, PASSAGES))
    with shared_index.shared_index():
        shared, _ = _rates(few, rows)
    print_progress(f"{shared:.0f} under one index over everything")
    return Result(
        name="commit",
        value=ours,
        unit="vectors/s",
        against="one HNSW index over all tenants, kept while writing",
        ratio=ours / shared,
        goal=GOAL,
        ok=ours >= GOAL,
        details={
            "vectors": count,
            "passages_of_a_document": PASSAGES,
            "with_words_per_second": words,
            "shared_per_second": shared,
        },
    )


def _create_chunked(count: int) -> list[ChunkedDocument]:
    """Documents with ``count`` passages together, of tenants with a few documents each."""
    documents = []
    user_id = uuid4()
    for at in range(count // PASSAGES):
        user_id = uuid4() if at % DOCUMENTS == 0 else user_id
        texts = passage_texts(PASSAGES, words=WORDS, about=at)
        job = create_chunked_job(texts, user_id=user_id, counts=[WORDS] * PASSAGES)
        chunks = DocumentChunk.objects.filter(document_id=job.document_id).order_by("chunk_ord")
        documents.append(ChunkedDocument(user_id, job.document_id, list(chunks.values_list("pk", flat=True))))
    database.analyze_tables(*TABLES)
    return documents


def _rates(documents: Sequence[ChunkedDocument], rows: Vectors) -> tuple[float, float]:
    """Vectors a second into the buffer and into the passages; and with the words counted in the same transaction."""
    moving = counting = 0.0
    for at, cut in enumerate(documents):
        fresh = stored.perturb_vectors(rows, seed=at)
        began = time.perf_counter()
        vector_store.buffer_vectors(cut.document_id, LIVE_MODEL, cut.chunk_ids, fresh, user_id=cut.user_id)
        with transaction.atomic():
            active_model.confirm_active_model(cut.user_id, LIVE_MODEL)
            vector_store.commit_vectors(cut.document_id, LIVE_MODEL)
            counted = time.perf_counter()
            bm25.index_document(cut.document_id)
            counting += time.perf_counter() - counted
        moving += time.perf_counter() - began
    count = sum(len(cut.chunk_ids) for cut in documents)
    return count / (moving - counting), count / moving
