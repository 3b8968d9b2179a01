"""The manifest of a law: what names, with its hash, every object that is to be trusted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from accounts.errors import ErrorCode
from documents.ids import canonical_json
from embeddings.embedders import DIMENSIONS
from statutes.error_codes import MANIFEST_INVALID, VECTORS_TOO_WIDE

SCHEMA_VERSION = "1"
MAX_BYTES = 64 * 1024 * 1024
TEXTS = ("law_id", "version", "chunker", "reader", "title", "language")


class ManifestRefused(Exception):
    """``code`` is stable; ``detail`` repeats nothing of the manifest's text."""

    def __init__(self, code: ErrorCode, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Entry:
    """An object, by where it lies and what it is. ``chunk_id`` is a passage's."""

    key: str
    sha256: str
    size: int
    chunk_id: UUID | None = None

    @classmethod
    def of(cls, key: str, content: bytes, chunk_id: UUID | None = None) -> Entry:
        return cls(key, hashlib.sha256(content).hexdigest(), len(content), chunk_id)

    def as_json(self) -> dict[str, Any]:
        named = {"chunk_id": str(self.chunk_id)} if self.chunk_id else {}
        return {"key": self.key, "sha256": self.sha256, "size": self.size, **named}


@dataclass(frozen=True, slots=True)
class Manifest:
    """``told`` is about the law as a whole; ``chunks`` are in the law's order, of which ``missing`` have no vector.

    Its bytes are the same whenever the same law is uploaded.
    """

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
    """Raises ``ManifestRefused("MANIFEST_INVALID")`` for what is none of ours."""
    try:
        body = json.loads(content)
        if body.pop("schema_version") != SCHEMA_VERSION:
            raise ManifestRefused(MANIFEST_INVALID, "The manifest is of another version of its form.")
        made = Manifest(
            law=_entry(body.pop("law")),
            embeddings=_entry(body.pop("embeddings")),
            chunks=tuple(_entry(each, passage=True) for each in body.pop("chunks")),
            missing=tuple(UUID(each) for each in body.pop("missing")),
            header={name: value for name, value in body.items() if name != "chunk_count"},
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ManifestRefused(MANIFEST_INVALID, "The manifest cannot be read.") from None
    _check(made)
    return made


def _entry(told: dict[str, Any], *, passage: bool = False) -> Entry:
    key, sha256, size = told["key"], told["sha256"], told["size"]
    if not isinstance(key, str) or not isinstance(sha256, str) or type(size) is not int:
        raise ValueError("an entry")
    if key.startswith("/") or {"..", ".", ""} & set(key.split("/")):
        raise ValueError("a key")
    return Entry(key, sha256, size, UUID(told["chunk_id"]) if passage else None)


def _check(made: Manifest) -> None:
    model = made.header.get("model")
    ids = {entry.chunk_id for entry in made.chunks}
    sound = (
        all(isinstance(made.header.get(name), str) for name in TEXTS)
        and isinstance(model, dict)
        and all(isinstance(model.get(name), str) for name in ("name", "version"))
        and len(ids) == len(made.chunks)
        and ids.issuperset(made.missing)
        and len(set(made.missing)) == len(made.missing)
    )
    if not sound:
        raise ManifestRefused(MANIFEST_INVALID, "The manifest does not say what it must.")
    if isinstance(model, dict) and model.get("dimensions") != DIMENSIONS:
        raise ManifestRefused(VECTORS_TOO_WIDE, f"The vectors are not {DIMENSIONS} wide.")
