"""Factory of chunked documents that wait for the embed stage."""

from collections.abc import Sequence
from uuid import UUID

from embeddings import chunk_store, tokenizer
from embeddings.chunking.chunkers import Chunk
from jobs.models import UploadJob
from testing.factories import JobFactory

SENTENCE = "Passage {} of the plan booklet of {}: the plan pays {} percent of covered hospital care."


def passage_texts(count: int, *, words: int = 0, about: object = "nobody") -> list[str]:
    """Passages, each unlike all others, ``words`` longer than a sentence."""
    return [SENTENCE.format(n, about, n % 100) + " care" * words for n in range(count)]


def create_chunked_job(passages: Sequence[str], *, user_id: UUID, counts: Sequence[int] | None = None) -> UploadJob:
    """Create a job at stage ``chunked`` with its document and passages. ``counts`` are their tokens, if known."""
    token_counts = counts or tokenizer.count_many(passages)
    total = len(passages)
    job: UploadJob = JobFactory.create(
        pipeline="insurance",
        user_id=user_id,
        stage="chunked",
        chunks_version=chunk_store.CHUNKS_VERSION,
        progress={"chunks_total": total, "chunks_done": total},
    )
    cut = [
        Chunk(ord=at, text=text, start=0, end=len(text), pages=(1, 1), headings=(), tokens=count)
        for at, (text, count) in enumerate(zip(passages, token_counts, strict=True))
    ]
    chunk_store.buffer_chunks(user_id=user_id, document_id=job.document_id, chunks=cut)
    chunk_store.commit_chunks(job.document_id)
    return job
