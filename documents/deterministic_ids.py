"""Deterministic UUIDv5 ids of documents, parses, chunks and embeddings."""

import json
import uuid
from typing import Any
from uuid import UUID

# MVP context §3: immutable.
NAMESPACE = UUID("6c8a1e6e-1f0b-4aa8-9f0a-1a7c2e6f2b42")


def canonical_json(config: Any) -> str:
    return json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def uuidv5(*parts: object) -> UUID:
    """Return the id of the parts, joined by colons in lower case; configurations are written as canonical JSON."""
    key = ":".join(canonical_json(part) if isinstance(part, (dict, list)) else str(part) for part in parts)
    return uuid.uuid5(NAMESPACE, key.lower())


def document_id(user_id: UUID, file_sha256: str) -> UUID:
    return uuidv5(user_id, file_sha256)


def parse_id(document: UUID, parser: str, version: str) -> UUID:
    return uuidv5(document, parser, version)


def chunk_id(document: UUID, chunker: str, version: str, ord_: int) -> UUID:
    return uuidv5(document, chunker, version, ord_)


def embedding_id(chunk: UUID, model: str, version: str) -> UUID:
    return uuidv5(chunk, model, version)
