"""Versions of a law: their order, their document ids, and the key of the law's publish lock."""

import hashlib
import re
import uuid
from datetime import datetime
from uuid import UUID

from documents.deterministic_ids import NAMESPACE
from statutes.models import Law, LawVersion

_PART = re.compile(r"[0-9]+|[^\W\d_]+")


def is_older(version: str, ingested: datetime | None, *, than: str, than_ingested: datetime | None) -> bool:
    """Tell whether ``version`` is the older: by the numbers in both, and where these are equal by ingestion time."""
    key, other_key = sort_key(version), sort_key(than)
    if key != other_key or version == than:
        return key < other_key
    return ingested is None or (than_ingested is not None and ingested < than_ingested)


def is_outdated(law_id: str, version: str, ingested: datetime | None) -> bool:
    """Tell whether a newer version of the law than ``version``, which was ingested at ``ingested``, is live."""
    law = Law.objects.filter(pk=law_id).first()
    if law is None or law.document_id is None:
        return False
    live = LawVersion.objects.filter(document_id=law.document_id).values_list("ingest_timestamp", flat=True).first()
    return is_older(version, ingested, than=law.version, than_ingested=live)


def sort_key(version: str) -> tuple[tuple[int, int, str], ...]:
    """Return the key by which versions sort: numbers as numbers, and after words; separators do not matter."""
    parts = _PART.findall(version.casefold())
    # A number sorts by its digits and not as an int, which takes at most 4,300 of them.
    return tuple((1, len(part.lstrip("0")), part.lstrip("0")) if part.isdecimal() else (0, 0, part) for part in parts)


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
