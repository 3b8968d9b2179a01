"""The parsed Markdown of a document: written to the store, recorded, and shared between twins."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from documents.error_codes import PARSE_MALFORMED
from documents.locks import lock_document
from documents.markdown.structure import are_pages_complete
from documents.models import Document, OcrPage
from documents.parsers.registry import Parser
from documents.storage import buckets
from jobs.models import UploadJob
from jobs.outcomes import Permanent

# The progress of a job whose text changed: the chunks of the old text must not let a later stage be skipped.
NO_CHUNKS = {"chunks_total": 0, "chunks_done": 0, "embeds_total": 0, "embeds_done": 0}


@dataclass(slots=True)
class ParseResult:
    """One document's text and its parser.

    ``failed`` are the pages, from 1, that could not be parsed, ``doubtful`` those whose text may be wrong.
    """

    parser: Parser
    text: str
    page_starts: tuple[int, ...]
    failed: tuple[int, ...] = ()
    doubtful: tuple[int, ...] = ()
    is_fallback: bool = False
    content: bytes = field(init=False)
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        self.content = self.text.encode()
        self.sha256 = hashlib.sha256(self.content).hexdigest()


def own_path(document: Document) -> str:
    return buckets.object_uri("parsed", document.user_id, document.pk, "md")


def is_stored(document: Document, parser: Parser) -> bool:
    same = (document.parser_name, document.parser_version) == (parser.name, parser.version)
    return same and bool(document.parsed_path) and is_intact(document)


def is_intact(document: Document) -> bool:
    return hashlib.sha256(read_bytes(document)).hexdigest() == document.parsed_sha256


def read_bytes(document: Document) -> bytes:
    if not document.parsed_path:
        return b""
    bucket, name = buckets.locate(document.parsed_path)
    if bucket.exists(name):
        return bucket.read(name)
    # A twin that owned the text may have been deleted since the row was read, and the text was transferred.
    row = Document.objects.filter(pk=document.pk).exclude(parsed_path=document.parsed_path)
    document.parsed_path = row.values_list("parsed_path", flat=True).first() or document.parsed_path
    bucket, name = buckets.locate(document.parsed_path)
    return bucket.read(name) if bucket.exists(name) else b""


def require_pages(document: Document, text: str) -> None:
    """Raise ``Permanent`` if the text lacks a page; text without page starts (of a callback, of DOCX) has no pages."""
    if document.page_starts and not are_pages_complete(text, document.page_starts, document.pages or 0):
        raise Permanent(PARSE_MALFORMED, "The parsed text does not fit its pages.")


def write_parse(document: Document, parse: ParseResult) -> str:
    """Write the text to the store unless a twin has stored the same; return its path. Call in no claim's transaction.

    A twin is another of the tenant's documents with the same text under its own path (002 §13). Before recording a
    twin's path, call ``lock_shared_parse``; deleting the twin calls ``transfer_shared_parse``.
    """
    path = own_path(document)
    if document.parsed_path == path and document.parsed_sha256 != parse.sha256:
        with transaction.atomic():
            lock_document(document.pk)
            transfer_shared_parse(document)
    same = Document.objects.filter(user_id=document.user_id, parsed_sha256=parse.sha256).exclude(pk=document.pk)
    twins = same.extra(where=["parsed_path LIKE '%%/' || document_id || '.md'"]).order_by("created_at", "pk")
    for twin in filter(is_intact, twins):
        return str(twin.parsed_path)
    put_text(path, parse.content)
    return path


def put_text(path: str, content: bytes) -> None:
    bucket, name = buckets.locate(path)
    bucket.put(name, content)


def delete_own_parse(document: Document, path: str) -> None:
    """Delete the document's own text after ``path``, a twin's, has been recorded instead."""
    if document.parsed_path == own_path(document) != path:
        with transaction.atomic():
            lock_document(document.pk)
            transfer_shared_parse(document)  # to a twin that shared it before another path was recorded
            bucket, name = buckets.locate(own_path(document))
            bucket.delete(name)


def record_parse(document: Document, parse: ParseResult, path: str) -> dict[str, Any]:
    """Write the parse to the document's row, in the caller's transaction; return the fields for its job."""
    write_parse_columns(document.pk, parse_columns(parse, path))
    return parse_fields(document, parse, path)


def write_parse_columns(document_id: UUID, columns: Mapping[str, Any]) -> None:
    Document.objects.filter(pk=document_id).update(**columns, updated_at=Now())
    OcrPage.objects.filter(document_id=document_id).delete()


def parse_columns(parse: ParseResult, path: str) -> dict[str, Any]:
    return {
        "parsed_path": path,
        "parsed_sha256": parse.sha256,
        "page_starts": list(parse.page_starts),
        "parser_name": parse.parser.name,
        "parser_version": parse.parser.version,
        "failed_pages": list(parse.failed),
        "doubtful_pages": list(parse.doubtful),
        "parse_fallback": parse.is_fallback,
    }


def parse_fields(document: Document, parse: ParseResult, path: str) -> dict[str, Any]:
    """Return the fields for the job of ``document``, which has the columns of its former parse, if there is one."""
    fields = job_fields(path, parse.sha256)
    fields["progress"] = {} if parse.sha256 == document.parsed_sha256 else dict(NO_CHUNKS)
    if document.pages:
        fields["progress"] |= pages_progress(document.pages, document.pages - len(parse.failed))
    return fields


def pages_progress(total: int, done: int) -> dict[str, int]:
    return {"pages_total": total, "pages_done": done}


def job_fields(path: str | None, sha256: str | None) -> dict[str, Any]:
    payload = {"parsed_path": path, "parsed_sha256": sha256}
    return {"parsed_path": path, "parsed_sha256": sha256, "payload": payload}


def transfer_shared_parse(document: Document) -> None:
    """Copy the text at this document's path to a twin that shares it, before the object is deleted or replaced.

    Call in a transaction that holds the document's lock.
    """
    path = own_path(document)
    sharing = Document.objects.filter(user_id=document.user_id, parsed_path=path).exclude(pk=document.pk)
    for heir in sharing.order_by("created_at", "pk"):
        lock_document(heir.pk)  # it cannot be deleted before it has inherited
        if sharing.filter(pk=heir.pk).exists():
            break
    else:
        return
    bucket, name = buckets.locate(path)
    if not bucket.exists(name):  # nothing to inherit: the integrity check reports the documents that point there
        return
    target = own_path(heir)
    put_text(target, bucket.read(name))
    ids = list(sharing.values_list("pk", flat=True))
    # The jobs first, as workers and deletions lock them: the other order could deadlock.
    UploadJob.objects.filter(document_id__in=ids, parsed_path=path).update(parsed_path=target)
    sharing.filter(pk__in=ids).update(parsed_path=target)


def lock_shared_parse(document: Document, path: str) -> bool:
    """Lock the twin that owns ``path`` until the transaction ends; False when the twin no longer has the text."""
    if path == own_path(document):
        return True
    owner = UUID(PurePath(path).stem)
    lock_document(owner)
    return Document.objects.filter(pk=owner, parsed_path=path).exists()
