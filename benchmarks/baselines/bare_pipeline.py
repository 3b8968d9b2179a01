"""Baseline for the pipeline without a queue: parse, normalize, chunk, embed and COPY in parallel processes.

Reads on stdin a JSON list of [path, document_id, user_id]; prints the seconds from the start signal to the end.
"""

import hashlib
import json
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import django

django.setup()

from django.conf import settings  # noqa: E402
from django.db import connection  # noqa: E402
from django.utils import timezone  # noqa: E402
from pgvector.psycopg import register_vector  # noqa: E402
from psycopg.types.json import Jsonb  # noqa: E402

from documents.deterministic_ids import chunk_id  # noqa: E402
from documents.markdown.normalization import normalize_pages  # noqa: E402
from documents.parsers import pdf_parser  # noqa: E402
from documents.parsers.failures import parse_failure  # noqa: E402
from embeddings.chunking import chunkers  # noqa: E402
from embeddings.embedders import registry  # noqa: E402
from jobs.outcomes import StageFailure  # noqa: E402

COPY = """COPY document_chunks (chunk_id, user_id, document_id, chunker_name, chunker_version, chunk_ord, chunk_sha,
    text, meta, embed_model, embed_version, vector_dim, vector_sha, embed_updated_at, embedding)
    FROM STDIN (FORMAT binary)"""
TYPES = (
    ["uuid"] * 3 + ["text"] * 2 + ["int4"] + ["text"] * 2 + ["jsonb"] + ["text"] * 2
    + ["int4", "text", "timestamptz", "vector"]
)  # fmt: skip


def embed_and_copy(path: Path, document_id: UUID, user_id: UUID) -> None:
    pages = pdf_parser.parse_pdf(path, pages=settings.MAX_PAGES).markdown
    normalized = normalize_pages(pages)
    if not normalized.text:
        raise parse_failure("NO_TEXT_LAYER")
    chunks = chunkers.split_markdown(normalized.text, normalized.page_starts)
    embedder = registry.get_embedder(settings.EMBEDDER)
    vectors: list[Any] = []
    for start in range(0, len(chunks), embedder.batch_size):
        vectors.extend(embedder.embed([chunk.text for chunk in chunks[start : start + embedder.batch_size]]))
    _copy(document_id, user_id, chunks, embedder, vectors)


def _copy(document_id: UUID, user_id: UUID, chunks: Any, embedder: Any, vectors: list[Any]) -> None:
    now = timezone.now()
    chunker = (chunkers.NAME, chunkers.VERSION)
    with connection.cursor() as cursor, cursor.copy(COPY) as copy:
        copy.set_types(TYPES)
        for chunk, vector, vector_sha in zip(chunks, vectors, map(registry.vector_sha, vectors), strict=True):
            sha = hashlib.sha256(chunk.text.encode()).hexdigest()
            id = chunk_id(document_id, *chunker, chunk.ord)
            copy.write_row((
                id, user_id, document_id, *chunker, chunk.ord, sha, chunk.text, Jsonb(chunk.meta), embedder.model,
                embedder.version, registry.DIMENSIONS, vector_sha, now, vector,
            ))  # fmt: skip


def _run(work: list[tuple[str, str, str]], following: Any, ready: Any) -> None:
    connection.ensure_connection()
    register_vector(connection.connection)
    ready.wait()
    while True:
        with following.get_lock():
            index = following.value
            following.value += 1
        if index >= len(work):
            return
        path, document_id, user_id = work[index]
        try:
            embed_and_copy(Path(path), UUID(document_id), UUID(user_id))
        except StageFailure:
            continue  # a file that ours refuses too


def main(processes: int) -> float:
    work = json.load(sys.stdin)
    context = multiprocessing.get_context("spawn")
    following, ready = context.Value("i", 0), context.Barrier(processes + 1)
    runners = [context.Process(target=_run, args=(work, following, ready)) for _ in range(processes)]
    for runner in runners:
        runner.start()
    ready.wait()
    began = time.perf_counter()
    for runner in runners:
        runner.join()
    took = time.perf_counter() - began
    if any(runner.exitcode for runner in runners):
        raise SystemExit("The script did not get through.")
    return took


if __name__ == "__main__":
    print(main(int(sys.argv[1])))
