"""Documents and passages as assistants see them: ids, addresses, text in parts, resources."""

import re
from typing import Any
from uuid import UUID

from django.conf import settings

from accounts.common_error_codes import not_found
from accounts.errors import ApiError
from accounts.rls import as_tenant
from documents import parse_store
from documents.error_codes import NOT_READY
from documents.models import Document
from embeddings.models import DocumentChunk
from portal.document_status import DocumentStatus

UUID_PATTERN = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
ID = re.compile(rf"(?P<kind>passage|document):(?P<uuid>{UUID_PATTERN})(?::(?P<start>[0-9]{{1,9}}))?")
URI = re.compile(rf"accessa://documents/(?P<uuid>{UUID_PATTERN})")
FETCH_CHARS = 100_000  # of a document in one response: about 25,000 tokens


def document_id(document: Document | UUID) -> str:
    return f"document:{document.pk if isinstance(document, Document) else document}"


def document_uri(document: Document) -> str:
    return f"accessa://documents/{document.pk}"


def document_url(document: UUID, passage: object = None) -> str:
    """Return the address of a document's page in the portal, at a passage."""
    at_passage = f"?passage={passage}#cited" if passage else ""
    return f"{settings.PUBLIC_URL}/d/{document}{at_passage}"


def passage_title(filename: str, pages: list[int], headings: list[str]) -> str:
    place = f", page {pages[0]}" if pages else ""
    return f"{filename}{place}{': ' if headings else ''}{' / '.join(headings)}"


def summarize(row: DocumentStatus) -> dict[str, Any]:
    """Return a document with its progress."""
    return {
        "id": document_id(row.document),
        "title": row.document.filename,
        "status": row.standing,
        "progress_pct": row.pct,
        "detail": row.sentence,
        "error": str(row.failure) if row.failure else None,
        "pages": row.document.pages,
        "uploaded_at": row.document.created_at.isoformat(),
        "url": document_url(row.id),
    }


def fetch(user_id: UUID, item_id: str) -> dict[str, Any]:
    """Return a passage, or the text of a document from an offset on. Raises ``ApiError``: NOT_FOUND, NOT_READY."""
    item = ID.fullmatch(item_id)
    if item is None:
        raise not_found()
    if item["kind"] == "passage":
        return _fetch_passage(user_id, UUID(item["uuid"]))
    return _fetch_document(user_id, UUID(item["uuid"]), int(item["start"] or 0))


def _fetch_passage(user_id: UUID, chunk_id: UUID) -> dict[str, Any]:
    own = DocumentChunk.objects.filter(user_id=user_id, pk=chunk_id).defer("embedding", "search")
    with as_tenant(user_id):
        chunk = own.select_related("document").first()
    if chunk is None:
        raise not_found()
    meta = chunk.meta or {}
    pages, headings = meta.get("pages") or [], meta.get("headings") or []
    return {
        "id": f"passage:{chunk.pk}",
        "title": passage_title(chunk.document.filename, pages, headings),
        "text": chunk.text,
        "url": document_url(chunk.document_id, chunk.pk),
        "metadata": {
            "document_id": document_id(chunk.document_id),
            "filename": chunk.document.filename,
            "pages": pages,
            "headings": headings,
            "uploaded_at": chunk.document.created_at.isoformat(),
        },
    }


def _fetch_document(user_id: UUID, document_pk: UUID, start: int) -> dict[str, Any]:
    document = _own_document(user_id, document_pk)
    text = document_text(document)
    end = start + FETCH_CHARS
    metadata = {
        "filename": document.filename,
        "pages": document.pages,
        "characters": len(text),
        "uploaded_at": document.created_at.isoformat(),
        "next_id": f"{document_id(document)}:{end}" if end < len(text) else None,
    }
    return {
        "id": f"{document_id(document)}:{start}" if start else document_id(document),
        "title": document.filename,
        "text": text[start:end],
        "url": document_url(document.pk),
        "metadata": metadata,
    }


def read_resource(user_id: UUID, uri: str) -> str:
    """Return the parsed Markdown of a document. Raises ``ApiError``: NOT_FOUND, NOT_READY."""
    resource = URI.fullmatch(uri)
    if resource is None:
        raise not_found()
    return document_text(_own_document(user_id, UUID(resource["uuid"])))


def _own_document(user_id: UUID, document_pk: UUID) -> Document:
    with as_tenant(user_id):
        document = Document.objects.filter(user_id=user_id, pk=document_pk).first()
    if document is None:
        raise not_found()
    return document


def document_text(document: Document) -> str:
    if document.parsed_path is None:
        raise ApiError(NOT_READY)
    return parse_store.read_bytes(document).decode()
