"""Spool of a law's artifacts on local disk before the upload: their hashes are known before the first byte."""

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
from statutes import queries
from statutes.s3 import keys
from statutes.s3.manifests import Entry

BATCH_SIZE = 40  # passages read together: 1 MB


@dataclass(frozen=True, slots=True)
class ArtifactSpec:
    """The passages and vectors of one version, one chunker (name@version) and one model."""

    law_id: str
    version: str
    document_id: UUID
    chunker: str
    model: str
    model_version: str


@dataclass(slots=True)
class Spool:
    """Two temporary files; threads may read passages concurrently."""

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
def spool_artifacts(spec: ArtifactSpec) -> Iterator[Spool]:
    """Yield the spooled passages and vectors; memory does not grow with the law."""
    with TemporaryFile() as vectors, TemporaryFile() as passages:
        spool = Spool(vectors, passages)
        digest, size = hashlib.sha256(), 0
        for chunk_id, ord_, sha, text, meta_json, vector in _passage_rows(spec):
            meta: dict[str, Any] = json.loads(meta_json) if meta_json else {}
            passage = {
                "chunk_id": str(chunk_id),
                "law_id": spec.law_id,
                "version": spec.version,
                "ord": ord_,
                "chunk_sha256": sha,
                "chunk_text": text,
                "chunk_meta": meta,
            }
            content = canonical_json(passage).encode()
            spool.add(Entry.of(keys.chunk(spec.law_id, chunk_id), content, chunk_id), content)
            if vector is None:
                spool.missing.append(chunk_id)
                continue
            law_id = canonical_json(spec.law_id)
            metadata = canonical_json({**meta, "ord": ord_, "version": spec.version, "chunk_sha256": sha})
            fields = f'"chunk_id":"{chunk_id}","vector":{vector},"law_id":{law_id},"metadata":{metadata}'
            line = f"{{{fields}}}\n".encode()
            vectors.write(line)
            digest.update(line)
            size += len(line)
        vectors.flush()
        passages.flush()
        vectors.seek(0)
        spool.embeddings = Entry(keys.vectors(spec.law_id), digest.hexdigest(), size)
        yield spool


def _passage_rows(spec: ArtifactSpec) -> Iterator[tuple[Any, ...]]:
    params: dict[str, Any] = {
        "document": spec.document_id,
        "chunker": spec.chunker,
        "model": spec.model,
        "model_version": spec.model_version,
        "after": -1,
        "most": BATCH_SIZE,
    }
    while True:
        with connection.cursor() as cursor:
            cursor.execute(queries.PASSAGES_WITH_VECTORS, params)
            rows = cursor.fetchall()
        yield from rows
        if len(rows) < BATCH_SIZE:
            return
        params["after"] = rows[-1][1]
