"""Milvus: one collection of all tenants' passages, with their vectors and the weights of their words.

Needs the package pymilvus, so load it by ``entries.load_engine``. https://milvus.io/docs
"""

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from typing import Any
from uuid import UUID

from django.conf import settings
from grpc import RpcError
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException

from embeddings.embedders.registry import DIMENSIONS, EmbeddingModel, Vectors
from embeddings.search_engine.entries import EngineUnavailable, Entry
from jobs import failpoints

DENSE, WORDS = "dense", "words"
SEARCH_SECONDS = 2.0  # of a search, and of each step of connecting: then PostgreSQL answers
WRITE_SECONDS = 15.0
REPLACE_SECONDS = 40.0  # of all writes of a document: less than the outbox lets a send take
BATCH = 500  # entries of a write: 3 MB of vectors
HNSW = {"M": 16, "efConstruction": 200}
EF_SEARCH = 200
UUID_CHARS, HASH_CHARS = 36, 16
_lock = threading.Lock()  # the cache alone lets concurrent threads create a client each

logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # logs each failed call with its traceback, which callers name


def search_vectors(user_id: UUID, model: EmbeddingModel, vector: Sequence[float] | Vectors, most: int) -> list[UUID]:
    """Return the tenant's chunks nearest to the vector, best first."""
    return _search(user_id, model, DENSE, [float(each) for each in vector], most, ef=max(EF_SEARCH, most))


def search_words(user_id: UUID, model: EmbeddingModel, weights: Mapping[str, float], most: int) -> list[UUID]:
    """Return the tenant's chunks whose words' weights, times those given, have the greatest sum, best first."""
    return _search(user_id, model, WORDS, sparse_vector(weights), most)


def _search(user_id: UUID, model: EmbeddingModel, field: str, query: Any, most: int, **params: int) -> list[UUID]:
    where = f'tenant == "{user_id}" and model == "{_hash(model.label)}"'
    with connected() as client:
        (hits,) = client.search(
            collection_name(),
            data=[query],
            anns_field=field,
            filter=where,
            limit=most,
            search_params={"params": params},
            timeout=SEARCH_SECONDS,
        )
    return [UUID(hit["id"][:UUID_CHARS]) for hit in hits]


def replace_document(user_id: UUID, document_id: UUID, entries: Sequence[Entry], version: int) -> None:
    """Write a document's entries, then delete what older versions have left, and nothing of a later version."""
    of_all = {"tenant": str(user_id), "document": str(document_id), "version": version}
    rows = [
        of_all
        | {
            "id": entry_id(entry.chunk_id, entry.model),
            "model": _hash(entry.model.label),
            "sha": entry.sha,
            DENSE: entry.vector,
            WORDS: sparse_vector(entry.words),
        }
        for entry in entries
    ]
    older = f'tenant == "{user_id}" and document == "{document_id}" and version < {version}'
    deadline = time.monotonic() + REPLACE_SECONDS
    with connected() as client:
        for start in range(0, len(rows), BATCH):
            client.upsert(collection_name(), rows[start : start + BATCH], timeout=_seconds_until(deadline))
        failpoints.failpoint("search_engine:written")
        client.delete(collection_name(), filter=older, timeout=_seconds_until(deadline))


def _seconds_until(deadline: float) -> float:
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise EngineUnavailable("the document took too long")
    return min(WRITE_SECONDS, seconds)


def sparse_vector(weights: Mapping[str, float]) -> dict[int, float]:
    """Return weights by a hash of their term. Terms that share one only add candidates: PostgreSQL ranks them."""
    return {int(_hash(term, 4), 16) % (2**32 - 1): weight for term, weight in weights.items()}


def delete_tenant(user_id: UUID, *, before: int | None = None) -> int:
    """Delete a tenant's entries, or those of versions ``before`` one; return how many it had."""
    entries = count_entries(user_id)
    older = "" if before is None else f" and version < {before}"
    with connected() as client:
        client.delete(collection_name(), filter=f'tenant == "{user_id}"{older}', timeout=WRITE_SECONDS)
    return entries


def count_entries(user_id: UUID | None = None) -> int:
    """Return how many entries a tenant has; None: all tenants together."""
    where = "" if user_id is None else f'tenant == "{user_id}"'
    with connected() as client:
        (row,) = client.query(collection_name(), filter=where, output_fields=["count(*)"], timeout=WRITE_SECONDS)
    return int(row["count(*)"])


def list_entries(user_id: UUID) -> dict[str, tuple[UUID, str]]:
    """Return the document and the sha of each entry of a tenant by its id, as ``entry_id`` makes it."""
    where, entries = f'tenant == "{user_id}"', dict[str, tuple[UUID, str]]()
    with connected() as client:
        pages = client.query_iterator(
            collection_name(), batch_size=1_000, filter=where, output_fields=["document", "sha"], timeout=WRITE_SECONDS
        )
        while page := pages.next():
            entries |= {row["id"]: (UUID(row["document"]), row["sha"]) for row in page}
    return entries


def is_built() -> bool:
    with _errors():
        return bool(_connect().has_collection(collection_name(), timeout=SEARCH_SECONDS))


def is_reachable() -> bool:
    """Tell whether searches can ask: the server answers, and was built."""
    try:
        return is_built()
    except EngineUnavailable:
        return False


def entry_id(chunk_id: UUID, model: EmbeddingModel) -> str:
    return f"{chunk_id}:{_hash(model.label)}"


@contextmanager
def connected() -> Iterator[MilvusClient]:
    """Yield the client of this process. Raises ``EngineUnavailable``; then the next call connects anew."""
    with _errors():
        if not _lock.acquire(timeout=SEARCH_SECONDS):
            raise EngineUnavailable("another thread connects")
        try:
            client = _client(settings.MILVUS_URI, collection_name(), os.getpid())
        finally:
            _lock.release()
        yield client


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (MilvusException, RpcError) as error:  # a deadline is gRPC's own
        _client.cache_clear()
        raise EngineUnavailable(f"{type(error).__name__} {getattr(error, 'code', '')}".strip()) from error


def _connect() -> MilvusClient:
    return MilvusClient(uri=settings.MILVUS_URI, timeout=SEARCH_SECONDS)


@lru_cache(maxsize=1)
def _client(uri: str, collection: str, process: int) -> MilvusClient:
    """Return one client a process: connections do not survive a fork."""
    client = _connect()
    # A server that was started again has none loaded. It is missing until `search_engine rebuild`: a search must not
    # take it for complete before.
    client.load_collection(collection, timeout=SEARCH_SECONDS)
    return client


def drop_collection() -> None:
    """Forget all entries, whether there are any or not. No search asks the engine until ``create_collection``."""
    with _errors():
        _connect().drop_collection(collection_name(), timeout=WRITE_SECONDS)


def create_collection() -> None:
    with _errors():
        client = _connect()
        _create(client, collection_name())


def _create(client: MilvusClient, collection: str) -> None:
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=UUID_CHARS + 1 + HASH_CHARS)
    schema.add_field("tenant", DataType.VARCHAR, max_length=UUID_CHARS, is_partition_key=True)
    schema.add_field("document", DataType.VARCHAR, max_length=UUID_CHARS)
    schema.add_field("model", DataType.VARCHAR, max_length=HASH_CHARS)
    schema.add_field("sha", DataType.VARCHAR, max_length=64)
    schema.add_field("version", DataType.INT64)
    schema.add_field(DENSE, DataType.FLOAT_VECTOR, dim=DIMENSIONS)
    schema.add_field(WORDS, DataType.SPARSE_FLOAT_VECTOR)
    indexes = client.prepare_index_params()
    indexes.add_index(DENSE, index_type="HNSW", metric_type="COSINE", params=HNSW)
    indexes.add_index(WORDS, index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
    # Strong: a search sees what was written before it began, or a document that was sent would not be found yet.
    client.create_collection(
        collection, schema=schema, index_params=indexes, consistency_level="Strong", timeout=WRITE_SECONDS
    )


def collection_name() -> str:
    """Return the collection's name, by the database whose rows it has: two of them may share a server."""
    return f"passages_{_hash(str(settings.DATABASES['default']['NAME']))}"


def _hash(text: str, size: int = HASH_CHARS // 2) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=size).hexdigest()
