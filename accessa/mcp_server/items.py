"""Documents, passages, records and statutes as assistants see them: ids, addresses, text in parts, resources."""

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
from integrations.search import get_record
from portal.document_status import DocumentStatus
from statutes.article_citations import strip_anchors
from statutes.search import get_passage

UUID_PATTERN = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
ID = re.compile(rf"(?P<kind>passage|document|record|statute):(?P<uuid>{UUID_PATTERN})(?::(?P<start>[0-9]{{1,9}}))?")
URI = re.compile(rf"accessa://documents/(?P<uuid>{UUID_PATTERN})")
FETCH_CHARS = 100_000  # of a document or record in one response: about 25,000 tokens


def document_id(document: Document | UUID) -> str:
    return f"document:{document.pk if isinstance(document, Document) else document}"


def document_uri(document: Document) -> str:
    return f"accessa://documents/{document.pk}"


def document_url(document: UUID, passage: object = None) -> str:
    """Return the address of a document's page in the portal, at a passage."""
    at_passage = f"?passage={passage}#cited" if passage else ""
    return f"{settings.PUBLIC_URL}/d/{document}{at_passage}"


def statute_url(passage: UUID, span: tuple[int, int] | None = None) -> str:
    """Return the address of a statute's passage in the portal, at a sentence."""
    at_sentence = f"?span={span[0]}-{span[1]}#cited" if span else ""
    return f"{settings.PUBLIC_URL}/statutes/{passage}{at_sentence}"


def record_url(url: str | None) -> str:
    """Return where the provider shows a record; of one without a safe address, the page that finds it."""
    return url if url and url.startswith("https://") else f"{settings.PUBLIC_URL}/find"


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
    """Return a passage, or the text of a document or record from an offset on.

    Raises ``ApiError``: NOT_FOUND, NOT_READY.
    """
    item = ID.fullmatch(item_id)
    if item is None:
        raise not_found()
    pk, start = UUID(item["uuid"]), int(item["start"] or 0)
    match item["kind"]:
        case "passage":
            return _fetch_passage(user_id, pk)
        case "statute":
            return _fetch_statute(pk)
        case "record":
            return _fetch_record(user_id, pk, start)
    return _fetch_document(user_id, pk, start)


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
    metadata = {
        "filename": document.filename,
        "pages": document.pages,
        "uploaded_at": document.created_at.isoformat(),
    }
    part = _text_part(document_id(document), document_text(document), start, metadata)
    return {"title": document.filename, "url": document_url(document.pk), **part}


def _fetch_record(user_id: UUID, record_id: UUID, start: int) -> dict[str, Any]:
    record = get_record(user_id, record_id)
    metadata = {
        "source": record.source,
        "document_type": record.document_type,
        "updated_at": record.updated_at.isoformat(),
    }
    part = _text_part(f"record:{record.id}", record.text, start, metadata)
    return {"title": record.title, "url": record_url(record.url), **part}


def _text_part(item_id: str, text: str, start: int, metadata: dict[str, Any]) -> dict[str, Any]:
    end = start + FETCH_CHARS
    rest = {"characters": len(text), "next_id": f"{item_id}:{end}" if end < len(text) else None}
    return {
        "id": f"{item_id}:{start}" if start else item_id,
        "text": text[start:end],
        "metadata": metadata | rest,
    }


def _fetch_statute(chunk_id: UUID) -> dict[str, Any]:
    law = get_passage(chunk_id).passage
    metadata = {
        "law_id": law.law_id,
        "version": law.version,
        "status": law.status,
        "language": law.language,
        "articles": [article.label for article in law.articles],
        "pages": law.pages,
        "headings": law.headings,
    }
    return {
        "id": f"statute:{chunk_id}",
        "title": law.citation,
        "text": strip_anchors(law.text),
        "url": statute_url(chunk_id),
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
