"""Sentence vectors: those of each passage's sentences by SENTENCE_MODEL, made in the background for hybrid search.

A passage without a row, or with a row of another text or model, is ranked by the static vectors alone
(embeddings.search.sentence_similarity). A row without vectors is the work that is left: there is no other queue, so it
may be interrupted anywhere.
"""

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from django.conf import settings
from django.db import connection, transaction
from numpy.typing import NDArray

from accounts.system_tenant import SYSTEM_TENANT_ID
from documents.locks import lock_document
from embeddings.embedders import registry
from embeddings.embedders.minilm import WIDTH
from embeddings.embedders.packaged_models import trim_heap
from embeddings.embedders.registry import Embedder
from embeddings.search.passage_sentences import passage_sentences
from jobs import claim_queries
from jobs.advisory_locks import session_lock
from jobs.cluster import maintenance, shared_state
from jobs.safe_errors import safe_traceback

log = logging.getLogger("accessa.embeddings")

LEAST_LENGTH = 1e-9  # of a vector, against division by zero
READABLE = "a word"
MAX_CHARS = 1_000  # of a sentence or a question that are read
PASSAGES = 16  # of a tenant, about two seconds, before the next tenant's turn; while jobs are due, one
PAUSE_SECONDS = 0.5
PAUSES = 4  # at most, for jobs: a queue that is never empty leaves a passage every two seconds, a tenth of a core
RETRY_SECONDS = 60  # after a question could not be embedded: a model that is missing is not looked for at each search
NICE = 10  # a tenth of a worker's share of a core, while the workers leave none idle
THREAD_NAME = LOCK_KEY = "sentence-vectors"
DOCUMENTS = 100  # checked by one statement
NIL_UUID = UUID(int=0)

# Of alias ``c``, a passage. What is known of the same text is copied, all as it was before the statement: a passage
# inserted at the beginning moves all texts to the next passage's row.
_ROWS = """
    INSERT INTO sentence_vectors AS v (chunk_id, user_id, document_id, chunk_sha, model, vectors)
    SELECT c.chunk_id, c.user_id, c.document_id, c.chunk_sha, %(sentence_model)s, (
        SELECT k.vectors FROM sentence_vectors k
        WHERE k.chunk_sha = c.chunk_sha AND k.model = %(sentence_model)s AND k.vectors IS NOT NULL
          AND (k.user_id = c.user_id OR %(across_tenants)s) LIMIT 1)
    FROM document_chunks c"""
_REPLACE = """
    ON CONFLICT (chunk_id) DO UPDATE SET chunk_sha = excluded.chunk_sha, model = excluded.model,
        vectors = excluded.vectors
    WHERE (v.chunk_sha, v.model) IS DISTINCT FROM (excluded.chunk_sha, excluded.model)"""
# Statutes are in languages for which the model is not made.
ENQUEUE = f"""{_ROWS}
    WHERE c.document_id = %(document)s AND c.chunker_name || '@' || c.chunker_version = %(chunker)s
      AND c.user_id <> %(system)s AND %(sentence_model)s <> ''
    {_REPLACE}"""
DOCUMENTS_AFTER = """
    SELECT document_id FROM documents WHERE document_id > %s AND chunks_version IS NOT NULL
    ORDER BY document_id LIMIT %s"""
# With the chunker of what can be searched.
MISSING = """
    SELECT DISTINCT d.document_id, d.chunks_version FROM documents d JOIN document_chunks c USING (document_id)
    WHERE d.document_id = ANY(%(documents)s) AND d.chunks_version = c.chunker_name || '@' || c.chunker_version
      AND c.embed_model IS NOT NULL AND c.user_id <> %(system)s AND NOT EXISTS (
          SELECT FROM sentence_vectors v
          WHERE v.chunk_id = c.chunk_id AND v.chunk_sha = c.chunk_sha AND v.model = %(sentence_model)s)"""
NEXT_TENANT = """
    SELECT user_id FROM sentence_vectors WHERE vectors IS NULL AND user_id > %s ORDER BY user_id LIMIT 1"""
# A text that its document's job is replacing waits for the new one. The inner LIMIT keeps the planner, which takes few
# passages to have a row's id and text, from reading all of them for each turn.
NEXT_PASSAGES = """
    SELECT v.user_id, v.chunk_sha, c.text FROM sentence_vectors v, LATERAL (
        SELECT text FROM document_chunks WHERE chunk_id = v.chunk_id AND chunk_sha = v.chunk_sha LIMIT 1) c
    WHERE v.user_id = %(user)s AND v.vectors IS NULL AND v.model = %(model)s
    ORDER BY v.document_id LIMIT %(most)s"""
# Every passage with that text, but for those that are just being deleted.
WRITE = """
    UPDATE sentence_vectors SET vectors = %(vectors)s WHERE chunk_id IN (
        SELECT chunk_id FROM sentence_vectors
        WHERE chunk_sha = %(sha)s AND model = %(model)s AND vectors IS NULL
          AND (user_id = %(user)s OR %(across_tenants)s)
        FOR UPDATE SKIP LOCKED)"""
COUNT_PENDING = "SELECT count(*) FROM sentence_vectors WHERE vectors IS NULL AND model = %s"
IS_PENDING = "SELECT EXISTS (SELECT FROM sentence_vectors WHERE vectors IS NULL AND model = %s)"
JOBS_ARE_DUE = f"""
    SELECT EXISTS (SELECT FROM upload_jobs WHERE {claim_queries.NORMAL})
        OR EXISTS (SELECT FROM upload_jobs WHERE {claim_queries.LOW_PRIORITY})"""

# A process that exits waits for the passage at hand, and lets no other begin: a thread that is inside of ONNX Runtime
# when Python ends aborts the process.
EXIT_SECONDS = 20
_embedding = threading.Lock()
atexit.register(_embedding.acquire, timeout=EXIT_SECONDS)

_checked_models: set[str] = set()  # whether this process has looked for passages without a row
_failures: dict[str, float] = {}  # by SENTENCE_MODEL: when a question could not be embedded


class PendingText(NamedTuple):
    user_id: UUID
    sha: str
    text: str


def model_label() -> str:
    """Return name and version of the sentence model, or an empty text for SENTENCE_MODEL=none."""
    embedder = sentence_embedder()
    return f"{embedder.model}@{embedder.version}" if embedder else ""


def sentence_embedder() -> Embedder | None:
    """Return the sentence model; None for SENTENCE_MODEL=none, and for a name that leads to no embedder.

    Such a name is an error of the system checks, and must end neither a cluster nor a search that runs all the same.
    """
    name = settings.SENTENCE_MODEL
    return None if name == registry.NO_SENTENCE_MODEL or registry.find_error(name) else registry.get_embedder(name)


def enqueue_params() -> dict[str, Any]:
    """Return the parameters of ``ENQUEUE`` besides ``document`` and ``chunker``."""
    return {
        "sentence_model": model_label(),
        "across_tenants": settings.REUSE_ACROSS_TENANTS,
        "system": SYSTEM_TENANT_ID,
    }


def count_pending() -> int:
    """Return how many passages wait for their sentence vectors."""
    return int(_fetch_one(COUNT_PENDING, [model_label()])) if sentence_embedder() else 0


def start_embedding() -> None:
    """Start ``embed_pending`` in a background thread, if a passage waits for it."""
    label = model_label()
    if label and (label not in _checked_models or _fetch_one(IS_PENDING, [label])):
        broke_off = "Sentence vectors are left out for now"
        maintenance.start_in_background(THREAD_NAME, embed_pending, log=log, broke_off=broke_off)


def embed_pending() -> int:
    """Embed until no passage waits, on one core, in one process of all; return how many texts were embedded.

    Jobs come first: while any is due, a passage is embedded every two seconds. Call outside of a transaction.
    """
    shared = sentence_embedder()
    if shared is None:
        return 0
    _lower_priority()
    with session_lock(LOCK_KEY) as is_locked:
        # An embedder of its own is freed at the end, and a fork meanwhile copies no lock of the shared one.
        count = _embed_locked(type(shared)()) if is_locked else 0
    if count:
        trim_heap()
        log.info("Sentences of %d passages were embedded.", count)
    return count


def _embed_locked(embedder: Embedder) -> int:
    if model_label() not in _checked_models:
        enqueue_missing()
        _checked_models.add(model_label())
    count = 0
    for pending in _pending_texts():
        if not _wait_for_jobs():
            break
        _write(pending, _embed_safely(embedder, pending.text))
        count += 1
    return count


def enqueue_missing() -> None:
    """Enqueue passages that are searchable without a row for their text: SENTENCE_MODEL was set or changed."""
    after = NIL_UUID
    with connection.cursor() as cursor:
        while True:
            cursor.execute(DOCUMENTS_AFTER, [after, DOCUMENTS])
            documents = [document_id for (document_id,) in cursor.fetchall()]
            if not documents:
                return
            cursor.execute(MISSING, enqueue_params() | {"documents": documents})
            for document_id, chunker in cursor.fetchall():
                with transaction.atomic():
                    lock_document(document_id, "vectors")  # whoever deletes it could wait for us, and we for them
                    cursor.execute(ENQUEUE, enqueue_params() | {"document": document_id, "chunker": chunker})
            after = documents[-1]


def embed_sentences(embedder: Embedder, text: str) -> bytes:
    """Return a passage's sentence vectors, a row each, as int8 whose length is of no meaning."""
    sentences = [each.text[:MAX_CHARS] for each in passage_sentences(text)] or [text[:MAX_CHARS]]
    rows = embedder.embed(sentences)[:, :WIDTH]
    scales = 127 / np.maximum(np.abs(rows).max(axis=1, keepdims=True), LEAST_LENGTH)
    return bytes(np.rint(rows * scales).astype(np.int8))


def embed_question(text: str) -> NDArray[np.float32] | None:
    """Return a question's unit vector by the sentence model; None without one, or where it fails or failed just now."""
    embedder, name = sentence_embedder(), settings.SENTENCE_MODEL
    if embedder is None or time.monotonic() - _failures.get(name, -inf) < RETRY_SECONDS:
        return None
    try:
        return embedder.embed([text[:MAX_CHARS]])[0, :WIDTH]
    except Exception as error:  # of the model's runtime, its files, its memory: a search ranks without it
        _failures[name] = time.monotonic()
        log.error("A question could not be embedded; static vectors rank alone: %s", safe_traceback(error))
        return None


def similarities(stored: bytes, asked: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return each sentence's cosine with a unit vector of ``WIDTH``."""
    rows = np.frombuffer(stored, np.int8).reshape(-1, WIDTH).astype(np.float32)
    lengths = np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), LEAST_LENGTH)
    cosines: NDArray[np.float32] = np.einsum("ij,j->i", rows, asked) / lengths
    return cosines


def _pending_texts() -> Iterator[PendingText]:
    """Yield texts that wait, some of each tenant in turn, as long as those yielded are written."""
    user_id, is_new_round = NIL_UUID, False
    while True:
        tenant = _fetch_one(NEXT_TENANT, [user_id])
        if tenant is None and not is_new_round:
            return
        if tenant is None:
            user_id, is_new_round = NIL_UUID, False
            continue
        user_id = tenant
        texts = _next_texts(user_id)
        is_new_round |= bool(texts)
        yield from texts


def _next_texts(user_id: UUID) -> Sequence[PendingText]:
    most = 1 if _fetch_one(JOBS_ARE_DUE) else PASSAGES
    with connection.cursor() as cursor:
        cursor.execute(NEXT_PASSAGES, {"user": user_id, "model": model_label(), "most": most})
        rows = [PendingText(*row) for row in cursor.fetchall()]
    return list({row.sha: row for row in rows}.values())


def _embed_safely(embedder: Embedder, text: str) -> bytes:
    """Embed a passage; one that the model cannot read has no sentence vectors, and stops no other.

    Raises what the model raises when it can read nothing: then the passages wait for a later round.
    """
    with _embedding:
        try:
            return embed_sentences(embedder, text)
        except Exception as error:
            embedder.embed([READABLE])
            log.error("A passage's sentences could not be embedded: %s", safe_traceback(error))
            return b""


def _write(pending: PendingText, vectors: bytes) -> None:
    params: dict[str, Any] = {"vectors": vectors, "sha": pending.sha, "user": pending.user_id, "model": model_label()}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(WRITE, params | {"across_tenants": settings.REUSE_ACROSS_TENANTS})


def _wait_for_jobs() -> bool:
    """Wait while jobs are due, at most for some pauses; return False when this cluster stops.

    Without that end, one tenant's long import would hold up the vectors of all, and a permanent queue for good.
    """
    pauses = 0
    while not shared_state.is_stopping():
        if pauses == PAUSES or not _fetch_one(JOBS_ARE_DUE):
            return True
        time.sleep(PAUSE_SECONDS)
        pauses += 1
    return False


def _lower_priority() -> None:
    """Lower this thread's priority, not the process': on Linux each thread has its own."""
    if sys.platform == "linux" and threading.current_thread() is not threading.main_thread():
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


def _fetch_one(sql: str, params: Sequence[Any] = ()) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        row = cursor.fetchone()
    return row[0] if row else None
