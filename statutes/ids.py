"""The names of a law's versions in tables made for documents."""

from __future__ import annotations

import hashlib
import uuid
from uuid import UUID

from documents.ids import NAMESPACE


def document_id(law_id: str, version: str) -> UUID:
    """Return the first document of a version. As spelled: laws whose names differ in capitals are different laws."""
    return uuid.uuid5(NAMESPACE, f"law:{law_id}:{version}")


def document_ids(law_id: str, version: str) -> tuple[UUID, UUID]:
    """Return the two documents that a version may have: while one is found, it is done anew in the other."""
    return document_id(law_id, version), uuid.uuid5(NAMESPACE, f"law-anew:{law_id}:{version}")


def other_document_id(law_id: str, version: str, found: UUID) -> UUID:
    """Return the other of a version's two documents."""
    first, second = document_ids(law_id, version)
    return second if found == first else first


def file_sha256(document_id: UUID, raw_sha256: str = "") -> str:
    """Return what stands for the file: two of them may be of the same bytes, which a tenant's documents may not."""
    return hashlib.sha256(f"law:{document_id}:{raw_sha256}".encode()).hexdigest()


def publish_lock_key(law_id: str) -> str:
    """Return the key of the advisory lock under which one worker at a time publishes a law.

    It is a session's lock, not a transaction's: no transaction is open while objects are uploaded, and a worker that
    has lost its claim and still uploads keeps others out.
    """
    return f"law:{law_id}"
