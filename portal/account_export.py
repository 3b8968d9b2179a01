"""ZIP of everything that a tenant has stored, streamed: originals, parsed text, chunks, and lists as JSON lines."""

import json
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Model, QuerySet
from django.http import StreamingHttpResponse

from accounts import rate_limit
from accounts.audit.log import record_action
from accounts.models import User
from accounts.rls import as_tenant
from documents import parse_store
from documents.models import Document, DocumentTag, Tag
from documents.zip_download import ZipStream
from embeddings import chunk_store
from integrations.models import ClientIntelligence, ConnectedSource, SourceDocument
from search.models import AnswerFeedback, SavedQuestion

ROWS = 200  # read in one transaction
DOCUMENT_FIELDS = (
    "document_id", "filename", "bytes_len", "file_sha256", "pages", "failed_pages", "ocr", "imported",
    "processing_status", "chunks_version", "created_at",
)  # fmt: skip
CHUNK_FIELDS = ("chunk_id", "chunk_ord", "text", "meta")
LISTS: tuple[tuple[type[Model], tuple[str, ...]], ...] = (
    (Document, DOCUMENT_FIELDS),
    (Tag, ("tag_id", "name", "color", "created_at")),
    (DocumentTag, ("document_id", "tag_id")),
    (SavedQuestion, ("question_id", "question", "history", "scope", "created_at")),
    (AnswerFeedback, ("document_id", "chunk_id", "span_start", "span_end", "question", "is_right", "created_at")),
    (ConnectedSource, ("id", "provider", "created_at")),
    (SourceDocument, ("source_id", "external_id", "document_type", "title", "url", "text", "raw_payload", "facts",
                      "source_created_at", "source_updated_at", "deleted_at")),
    (ClientIntelligence, ("client_name", "industry", "summary", "key_facts", "source_id", "external_id", "text",
                          "source_updated_at", "created_at")),
)  # fmt: skip


def export_response(user: User) -> StreamingHttpResponse:
    """Record an export of the user's data and return its ZIP. Raises ``ApiError``: LOOK_LIMIT_REACHED."""
    rate_limit.check_rate(rate_limit.EXPORTS, user.pk)
    record_action(
        by=None, unnamed="tenant", action="users.export", reason="By its tenant.", object_type="user",
        object_id=user.pk, tenant_id=user.pk,
    )  # fmt: skip
    headers = {"Content-Disposition": 'attachment; filename="accessa-data.zip"'}
    return StreamingHttpResponse(_stream_zip(user), content_type="application/zip", headers=headers)


def _stream_zip(user: User) -> Iterator[bytes]:
    """Yield the ZIP. No transaction is open, and no more than a document's text in memory, while a piece is sent."""
    stream = ZipStream(zipfile.ZIP_DEFLATED)
    account = {name: getattr(user, name) for name in ("id", "email", "date_joined", "notify", "language")}
    stream.archive.writestr(stream.entry("account.json"), _json_line(account))
    for model, fields in LISTS:
        rows = model._default_manager.all()
        yield from _add_list(stream, user.pk, f"{model._meta.db_table}.jsonl", rows, fields)
    for row in _rows(user.pk, Document.objects.all(), ("document_id",)):
        yield from _add_document(stream, user.pk, row["document_id"])
    yield stream.end()


def _add_document(stream: ZipStream, user_id: UUID, document_id: UUID) -> Iterator[bytes]:
    with as_tenant(user_id):
        document = Document.objects.filter(user_id=user_id, pk=document_id).first()
    if document is None:  # deleted meanwhile
        return
    name = f"text/{document_id}.md"
    with stream.missing_noted(name):
        if text := parse_store.read_bytes(document):
            stream.archive.writestr(stream.entry(name), text)
            yield stream.take()
    if document.chunks_version:
        chunks = chunk_store.document_chunks(document)
        yield from _add_list(stream, user_id, f"chunks/{document_id}.jsonl", chunks, CHUNK_FIELDS)
    if document.stored_at:
        yield from stream.add_original(document, f"originals/{document_id}/{document.filename}")


def _add_list(
    stream: ZipStream, user_id: UUID, name: str, rows: QuerySet[Any], fields: Sequence[str]
) -> Iterator[bytes]:
    with stream.archive.open(stream.entry(name), "w", force_zip64=True) as target:
        for row in _rows(user_id, rows, fields):
            target.write(_json_line(row))
            yield stream.take()


def _rows(user_id: UUID, rows: QuerySet[Any], fields: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the tenant's rows as dictionaries, a page of them at a time."""
    own, last = rows.filter(user_id=user_id).order_by("pk"), None
    while True:
        following = own if last is None else own.filter(pk__gt=last)
        with as_tenant(user_id):
            page = list(following.values("pk", *fields)[:ROWS])
        for row in page:
            last = row["pk"]
            yield {name: row[name] for name in fields}
        if len(page) < ROWS:
            return


def _json_line(row: dict[str, Any]) -> bytes:
    return json.dumps(row, cls=DjangoJSONEncoder, ensure_ascii=False).encode() + b"\n"
