"""Staff's access to a tenant's text: its audit entry is the key, for a quarter of an hour and for who made it."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from accounts.audit import log
from accounts.audit.models import AuditEntry
from accounts.errors import not_found
from accounts.models import User
from documents.models import Document
from documents.parsing import parse_store
from embeddings import chunk_store
from embeddings.models import DocumentChunk

ACTION = "documents.read_text"
LASTS = timedelta(minutes=15)
MOST_PASSAGES = 50  # of a page


def begin(document_id: UUID, *, by: User, reason: str) -> AuditEntry:
    """Write down who reads which document and why; without this entry nothing of it is shown.

    Raises ``Refused``: ``REASON_REQUIRED``, ``NOT_FOUND``.
    """
    with transaction.atomic():
        document = Document.objects.filter(pk=document_id).first()
        if document is None:
            raise not_found()
        return log.record_action(
            by=by,
            action=ACTION,
            reason=reason,
            object_type="document",
            object_id=document.pk,
            tenant_id=document.user_id,
        )


def opened(entry_id: UUID, *, by: User) -> Document:
    """Return the document that the entry opens; raise ``Refused("NOT_FOUND")`` for another's, an old one, a deleted."""
    # The database's clock wrote it, and tells how old it is.
    entries = AuditEntry.objects.filter(pk=entry_id, actor_id=by.pk, action=ACTION, at__gt=Now() - LASTS)
    document_id = entries.values_list("object_id", flat=True).first()
    document = Document.objects.filter(pk=document_id).first() if document_id else None
    if document is None:
        raise not_found()
    return document


def page_of(document: Document, number: int) -> tuple[str, int] | None:
    """Return the markdown of a page, from 1, and where it begins in the parsed text; None where there is no parse.

    A parse that does not say where its pages begin is shown whole, as page 1. Raises ``OSError`` of the store.
    """
    return parse_store.read_page(document, number)


def passages(document: Document, number: int) -> QuerySet[DocumentChunk]:
    """Return the passages that stand on a page, also in part."""
    return chunk_store.page_chunks(document, number)[:MOST_PASSAGES]


def on_page(document: Document, number: int, chunk_ord: int) -> str:
    """Return what of a passage stands on a page, "" where nothing does. Raises ``OSError`` of the store."""
    passage = chunk_store.document_chunks(document).filter(chunk_ord=chunk_ord).first()
    found = page_of(document, number)
    if passage is None or not passage.meta or found is None:
        return ""
    text, start = found
    return text[max(passage.meta["start"] - start, 0) : max(passage.meta["end"] - start, 0)]
