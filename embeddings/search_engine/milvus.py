"""Milvus: one collection of all tenants' passages, with their vectors and the weights of their words.

Needs the package pymilvus, so load it by ``entries.load_engine``. https://milvus.io/docs
"""

import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from typing import Any
from uuid import UUID

from django.conf import settings
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException

from embeddings.embedders.registry import DIMENSIONS, EmbeddingModel, Vectors
from embeddings.search_engine.entries import EngineUnavailable, Entry

DENSE, WORDS = "dense", "words"
SEARCH_SECONDS = 2.0  # of a search: then PostgreSQL answers
WRITE_SECONDS = 15.0
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
            _collection(),
            data=[query],
            anns_field=field,
            filter=where,
            limit=most,
            search_params={"params": params},
            timeout=SEARCH_SECONDS,
        )
    return [UUID(hit["id"][:UUID_CHARS]) for hit in hits]


def replace_document(user_id: UUID, document_id: UUID, entries: Sequence[Entry], version: int) -> None:
    """Write a document's entries, then delete what older versions have left. A later version is left as it is."""
    of_all = {"tenant": str(user_id), "document": str(document_id), "version": version}
    rows = [
        of_all
        | {
            "id": f"{entry.chunk_id}:{_hash(entry.model.label)}",
            "model": _hash(entry.model.label),
            "sha": entry.sha,
            DENSE: entry.vector,
            WORDS: sparse_vector(entry.words),
        }
        for entry in entries
    ]
    older = f'tenant == "{user_id}" and document == "{document_id}" and version < {version}'
    with connected() as client:
        for start in range(0, len(rows), BATCH):
            client.upsert(_collection(), rows[start : start + BATCH], timeout=WRITE_SECONDS)
        client.delete(_collection(), filter=older, timeout=WRITE_SECONDS)


def sparse_vector(weights: Mapping[str, float]) -> dict[int, float]:
    """Return weights by a hash of their term. Terms that share one only add candidates: PostgreSQL ranks them."""
    return {int(_hash(term, 4), 16) % (2**32 - 1): weight for term, weight in weights.items()}


def is_reachable() -> bool:
    try:
        with connected() as client:
            client.get_server_version(timeout=SEARCH_SECONDS)
    except EngineUnavailable:
        return False
    return True


@contextmanager
def connected() -> Iterator[MilvusClient]:
    """Yield the client of this process. Raises ``EngineUnavailable``; then the next call connects anew."""
    try:
        with _lock:
            client = _client(settings.MILVUS_URI, _collection(), os.getpid())
        yield client
    except MilvusException as error:
        _client.cache_clear()
        raise EngineUnavailable(f"Milvus: {error.code}") from error


@lru_cache(maxsize=1)
def _client(uri: str, collection: str, process: int) -> MilvusClient:
    """Return one client a process: connections do not survive a fork."""
    client = MilvusClient(uri=uri, timeout=SEARCH_SECONDS)
    if not client.has_collection(collection, timeout=SEARCH_SECONDS):
        _create(client, collection)
    client.load_collection(collection, timeout=WRITE_SECONDS)  # a server that was started again has none loaded
    return client


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
    try:
        # Strong: a search sees what was written before it began, or a document that was sent would not be found yet.
        client.create_collection(
            collection, schema=schema, index_params=indexes, consistency_level="Strong", timeout=WRITE_SECONDS
        )
    except MilvusException:
        if not client.has_collection(collection, timeout=SEARCH_SECONDS):  # else another process was faster
            raise


def _collection() -> str:
    """Return the collection's name, by the database whose rows it has: two of them may share a server."""
    return f"passages_{_hash(str(settings.DATABASES['default']['NAME']))}"


def _hash(text: str, size: int = HASH_CHARS // 2) -> str:
    return blake2b(text.encode("utf-8", "replace"), digest_size=size).hexdigest()
