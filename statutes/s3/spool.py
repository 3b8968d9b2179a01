"""What is to be uploaded of a law, written to this machine's disk first: its hashes are known before the first byte."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import IO, Any
from uuid import UUID

from django.db import connection

from documents.ids import canonical_json
from statutes.s3 import keys
from statutes.s3.manifests import Entry

AT_ONCE = 40  # passages read together: 1 MB
# pgvector writes the shortest decimals that give the same float32 again, and always the same: JSON as it is.
# The model's vector is committed already, or waits in the buffer or beside another model's. Subqueries: of a buffer
# that fills in seconds the planner knows nothing.
_WAITING = """(
    SELECT v.embedding::text FROM {table} v
    WHERE v.chunk_id = c.chunk_id AND v.embed_model = %(model)s AND v.embed_version = %(model_version)s LIMIT 1)"""
PASSAGES = f"""
    SELECT chunk_id, chunk_ord, chunk_sha, text, meta::text, coalesce(
        CASE WHEN embed_model = %(model)s AND embed_version = %(model_version)s THEN embedding::text END,
        {_WAITING.format(table="document_vector_buffer")}, {_WAITING.format(table="shadow_vectors")})
    FROM document_chunks c
    WHERE document_id = %(document)s AND chunker_name || '@' || chunker_version = %(chunker)s AND chunk_ord > %(after)s
    ORDER BY chunk_ord LIMIT %(most)s"""


@dataclass(frozen=True, slots=True)
class ArtifactSpec:
    """Which passages and vectors: of one version of a law, one chunker (name@version) and one model."""

    law_id: str
    version: str
    document_id: UUID
    chunker: str
    model: str
    model_version: str


@dataclass(slots=True)
class Spool:
    """Two files; threads may read the passages' together."""

    vectors: IO[bytes]
    passages: IO[bytes]
    chunks: list[Entry] = field(default_factory=list)
    missing: list[UUID] = field(default_factory=list)
    embeddings: Entry = field(default_factory=lambda: Entry("", "", 0))
    _starts: list[int] = field(default_factory=list)
    _end: int = 0

    def add(self, entry: Entry, content: bytes) -> None:
        self.passages.write(content)
        self._starts.append(self._end)
        self._end += len(content)
        self.chunks.append(entry)

    def passage(self, number: int) -> bytes:
        return os.pread(self.passages.fileno(), self.chunks[number].size, self._starts[number])


@contextmanager
def spool_artifacts(what: ArtifactSpec) -> Iterator[Spool]:
    """Lend what is to be uploaded; memory does not grow with the law."""
    with TemporaryFile() as vectors, TemporaryFile() as passages:
        made = Spool(vectors, passages)
        digest, size = hashlib.sha256(), 0
        for row in _rows(what):
            line = _write(made, what, *row)
            digest.update(line)
            size += len(line)
        vectors.flush()
        passages.flush()
        vectors.seek(0)
        made.embeddings = Entry(keys.vectors(what.law_id), digest.hexdigest(), size)
        yield made


def _write(
    made: Spool, what: ArtifactSpec, chunk_id: UUID, ord_: int, sha: str, text: str, meta: str, vector: str
) -> bytes:
    """Spool a passage and its vector; return the vector's line, nothing where there is none."""
    told: dict[str, Any] = json.loads(meta) if meta else {}
    passage = {
        "chunk_id": str(chunk_id),
        "law_id": what.law_id,
        "version": what.version,
        "ord": ord_,
        "chunk_sha256": sha,
        "chunk_text": text,
        "chunk_meta": told,
    }
    content = canonical_json(passage).encode()
    made.add(Entry.of(keys.chunk(what.law_id, chunk_id), content, chunk_id), content)
    if vector is None:
        made.missing.append(chunk_id)
        return b""
    metadata = canonical_json({**told, "ord": ord_, "version": what.version, "chunk_sha256": sha})
    line = (
        f'{{"chunk_id":"{chunk_id}","vector":{vector},"law_id":{canonical_json(what.law_id)},"metadata":{metadata}}}\n'
    )
    made.vectors.write(line.encode())
    return line.encode()


def _rows(what: ArtifactSpec) -> Iterator[tuple[Any, ...]]:
    after = -1
    while True:
        params: dict[str, Any] = {
            "document": what.document_id,
            "chunker": what.chunker,
            "model": what.model,
            "model_version": what.model_version,
            "after": after,
            "most": AT_ONCE,
        }
        with connection.cursor() as cursor:
            cursor.execute(PASSAGES, params)
            rows = cursor.fetchall()
        yield from rows
        if len(rows) < AT_ONCE:
            return
        after = rows[-1][1]
