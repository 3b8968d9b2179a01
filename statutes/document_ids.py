"""Deterministic ids of a version's two documents, their file hash, and the key of the publish lock."""

import hashlib
import uuid
from uuid import UUID

from documents.deterministic_ids import NAMESPACE


def document_id(law_id: str, version: str) -> UUID:
    """Return the first document of a version. Case-sensitive: law ids that differ in capitals are different laws."""
    return uuid.uuid5(NAMESPACE, f"law:{law_id}:{version}")


def document_ids(law_id: str, version: str) -> tuple[UUID, UUID]:
    """Return the two documents of a version: while one is live, the version is reprocessed in the other."""
    return document_id(law_id, version), uuid.uuid5(NAMESPACE, f"law-anew:{law_id}:{version}")


def other_document_id(law_id: str, version: str, document_id: UUID) -> UUID:
    first, second = document_ids(law_id, version)
    return second if document_id == first else first


def file_sha256(document_id: UUID, raw_sha256: str = "") -> str:
    """Return the document's ``file_sha256``: two statutes may have the same bytes, a tenant's documents may not."""
    return hashlib.sha256(f"law:{document_id}:{raw_sha256}".encode()).hexdigest()


def publish_lock_key(law_id: str) -> str:
    """Return the key of the session lock of a law's publication: no transaction is open while objects are uploaded."""
    return f"law:{law_id}"
