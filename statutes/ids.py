"""The names of a law's versions in tables made for documents."""

from __future__ import annotations

import hashlib
import uuid
from uuid import UUID

from documents.ids import NAMESPACE


def document_id(law_id: str, version: str) -> UUID:
    """Return the document of a version. As spelled: laws whose names differ in their capitals are different laws."""
    return uuid.uuid5(NAMESPACE, f"law:{law_id}:{version}")


def file_sha256(law_id: str, version: str, raw_sha256: str = "") -> str:
    """Return what stands for the file: two versions may be of the same bytes, which a tenant's documents may not."""
    return hashlib.sha256(f"law:{law_id}:{version}:{raw_sha256}".encode()).hexdigest()
