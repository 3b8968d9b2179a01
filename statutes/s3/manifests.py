"""Manifest of a law's artifacts: it lists, with its hash, every object that readers may trust."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from documents.deterministic_ids import canonical_json
from embeddings.embedders.registry import DIMENSIONS
from jobs.outcomes import Permanent
from statutes.error_codes import MANIFEST_INVALID, VECTORS_TOO_WIDE

SCHEMA_VERSION = "1"
MAX_BYTES = 64 * 1024 * 1024
TEXT_FIELDS = ("law_id", "version", "chunker", "reader", "title", "language")


class ManifestRefused(Permanent):
    """Invalid artifacts; ``detail`` repeats nothing of the manifest's text."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Key, hash and size of an object; ``chunk_id`` for passages."""

    key: str
    sha256: str
    size: int
    chunk_id: UUID | None = None

    @classmethod
    def from_content(cls, key: str, content: bytes, chunk_id: UUID | None = None) -> Entry:
        return cls(key, hashlib.sha256(content).hexdigest(), len(content), chunk_id)

    @classmethod
    def from_json(cls, fields: dict[str, Any], *, is_passage: bool = False) -> Entry:
        key, sha256, size = fields["key"], fields["sha256"], fields["size"]
        if not isinstance(key, str) or not isinstance(sha256, str) or type(size) is not int:
            raise ValueError("an entry")
        if key.startswith("/") or {"..", ".", ""} & set(key.split("/")):
            raise ValueError("a key")
        return cls(key, sha256, size, UUID(fields["chunk_id"]) if is_passage else None)

    def as_json(self) -> dict[str, Any]:
        body = {"key": self.key, "sha256": self.sha256, "size": self.size}
        return body | ({"chunk_id": str(self.chunk_id)} if self.chunk_id else {})


@dataclass(frozen=True, slots=True)
class Manifest:
    """``missing`` are the ``chunks`` without a vector. The same law has the same bytes whenever it is uploaded."""

    header: Mapping[str, Any]
    law: Entry
    embeddings: Entry
    chunks: tuple[Entry, ...]
    missing: tuple[UUID, ...]

    @property
    def law_id(self) -> str:
        return str(self.header["law_id"])

    @property
    def version(self) -> str:
        return str(self.header["version"])

    def entries(self) -> Iterator[Entry]:
        yield from (self.law, self.embeddings, *self.chunks)

    def content(self) -> bytes:
        body = {
            **self.header,
            "schema_version": SCHEMA_VERSION,
            "law": self.law.as_json(),
            "embeddings": {**self.embeddings.as_json(), "count": len(self.chunks) - len(self.missing)},
            "chunks": [entry.as_json() for entry in self.chunks],
            "chunk_count": len(self.chunks),
            "missing": [str(chunk_id) for chunk_id in self.missing],
        }
        return canonical_json(body).encode()


def parse_manifest(content: bytes) -> Manifest:
    """Parse and validate a manifest. Raises ``ManifestRefused("MANIFEST_INVALID")`` or ``VECTORS_TOO_WIDE``."""
    try:
        body = json.loads(content)
        if body.pop("schema_version") != SCHEMA_VERSION:
            raise ManifestRefused(MANIFEST_INVALID, "The manifest has another schema version.")
        manifest = Manifest(
            law=Entry.from_json(body.pop("law")),
            embeddings=Entry.from_json(body.pop("embeddings")),
            chunks=tuple(Entry.from_json(entry, is_passage=True) for entry in body.pop("chunks")),
            missing=tuple(UUID(chunk_id) for chunk_id in body.pop("missing")),
            header={name: body[name] for name in body if name != "chunk_count"},
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ManifestRefused(MANIFEST_INVALID, "The manifest cannot be read.") from None
    model = manifest.header.get("model")
    chunk_ids = {entry.chunk_id for entry in manifest.chunks}
    is_valid = (
        all(isinstance(manifest.header.get(name), str) for name in TEXT_FIELDS)
        and isinstance(model, dict)
        and all(isinstance(model.get(name), str) for name in ("name", "version"))
        and len(chunk_ids) == len(manifest.chunks)
        and chunk_ids.issuperset(manifest.missing)
        and len(set(manifest.missing)) == len(manifest.missing)
    )
    if not is_valid:
        raise ManifestRefused(MANIFEST_INVALID, "The manifest lacks a required field, or has an invalid one.")
    if isinstance(model, dict) and model.get("dimensions") != DIMENSIONS:
        raise ManifestRefused(VECTORS_TOO_WIDE, f"The vectors are not {DIMENSIONS} wide.")
    return manifest
