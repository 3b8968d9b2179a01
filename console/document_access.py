"""Staff access to a tenant's text: an audit entry opens one document to its author for fifteen minutes."""

from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from accounts.audit import log
from accounts.audit.models import AuditEntry
from accounts.error_codes import not_found
from accounts.models import User
from documents.models import Document
from documents.storage import file_cache
from embeddings import chunk_store
from embeddings.models import DocumentChunk

ACTION = "documents.read_text"
VALID_FOR = timedelta(minutes=15)
MAX_PASSAGES = 50  # of a page


def grant_access(document_id: UUID, *, by: User, reason: str) -> AuditEntry:
    """Record who reads which document and why; without this entry nothing of it is shown.

    Raises ``ApiError``: ``REASON_REQUIRED``, ``NOT_FOUND``.
    """
    with transaction.atomic():
        document = Document.objects.filter(pk=document_id).first()
        if document is None:
            raise not_found()
        return log.record_action(
            by=by, action=ACTION, reason=reason, object_type="document", object_id=document.pk,
            tenant_id=document.user_id,
        )  # fmt: skip


def accessible_document(entry_id: UUID, *, by: User) -> Document:
    """Return the document of an audit entry. ``NOT_FOUND`` for another's entry, an old one, a deleted document."""
    # The database's clock wrote the entry, and tells how old it is.
    entries = AuditEntry.objects.filter(pk=entry_id, actor_id=by.pk, action=ACTION, at__gt=Now() - VALID_FOR)
    document_id = entries.values_list("object_id", flat=True).first()
    document = Document.objects.filter(pk=document_id).first() if document_id else None
    if document is None:
        raise not_found()
    return document


def page_passages(document: Document, number: int) -> QuerySet[DocumentChunk]:
    """Return the passages on a page, also those that are only partly on it."""
    return chunk_store.page_chunks(document, number)[:MAX_PASSAGES]


def passage_on_page(document: Document, number: int, chunk_ord: int) -> str:
    """Return the part of a passage that is on a page, "" if there is none. Raises ``OSError`` of the store."""
    passage = chunk_store.document_chunks(document).filter(chunk_ord=chunk_ord).first()
    page = file_cache.read_page(document, number)
    if passage is None or not passage.meta or page is None:
        return ""
    text, start = page
    return text[max(passage.meta["start"] - start, 0) : max(passage.meta["end"] - start, 0)]
