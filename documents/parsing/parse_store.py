"""The parsed markdown of a document: stored whole, recorded with the stage, shared by a tenant's twins."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from documents import storage
from documents.locks import lock
from documents.markdown.normalization import NormalizedPages
from documents.models import Document, ScannedPage
from documents.parsers.registry import Parser
from documents.storage import file_cache
from jobs.models import UploadJob

# Another text makes what was cut of the old one count for nothing: no later stage may be passed over on its account.
NO_CHUNKS = {"chunks_total": 0, "chunks_done": 0, "embeds_total": 0, "embeds_done": 0}


@dataclass(frozen=True, slots=True)
class ParseResult:
    """One document's text, and how it was made. ``failed`` are pages, from 1, that the parser gave up on."""

    parser: Parser
    text: str
    page_starts: tuple[int, ...]
    failed: tuple[int, ...] = ()
    is_fallback: bool = False

    @classmethod
    def from_pages(cls, parser: Parser, normalized: NormalizedPages, **more: Any) -> ParseResult:
        return cls(parser, normalized.text, tuple(normalized.page_starts), **more)

    @property
    def content(self) -> bytes:
        return self.text.encode()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def own_path(document: Document) -> str:
    return storage.object_uri("parsed", document.user_id, document.pk, "md")


def is_stored(document: Document, parser: Parser) -> bool:
    """Tell whether ``parser`` has parsed these bytes for this tenant before, and its text is unharmed."""
    same = (document.parser_name, document.parser_version) == (parser.name, parser.version)
    return same and bool(document.parsed_path) and is_intact(document)


def is_intact(document: Document) -> bool:
    return hashlib.sha256(read_bytes(document)).hexdigest() == document.parsed_sha256


def read_bytes(document: Document) -> bytes:
    if not document.parsed_path:
        return b""
    bucket, name = storage.locate(document.parsed_path)
    return bucket.read(name) if bucket.exists(name) else b""


def read_text(document: Document) -> str:
    """Return the normalized markdown of a document that has been parsed."""
    return read_bytes(document).decode()


def read_page(document: Document, number: int) -> tuple[str, int] | None:
    """Return the markdown of a page, from 1, and where it begins in the parsed text; None where there is no parse.

    A parse that does not say where its pages begin is page 1 as a whole. Raises ``OSError`` of the store.
    """
    text = file_cache.cached_parsed_text(document, lambda: read_bytes(document)).decode()
    if not text:
        return None
    starts = [*(document.page_starts or [0]), len(text)]
    if not 1 <= number < len(starts):
        return "", len(text)
    return text[starts[number - 1] : starts[number]], starts[number - 1]


def find_shared_parse(document: Document, sha256: str) -> Document | None:
    """Return another of the tenant's documents that has the same text stored, soundly, under its own path (002 §13)."""
    twins = Document.objects.filter(user_id=document.user_id, parsed_sha256=sha256).exclude(pk=document.pk)
    owners = twins.extra(where=["parsed_path LIKE '%%/' || document_id || '.md'"]).order_by("created_at", "pk")
    return next((twin for twin in owners if is_intact(twin)), None)


def write_parse(document: Document, parse: ParseResult) -> str:
    """See to it that the text is in the store; return its path. Call under no transaction of a claim.

    A twin's path is only lent: who records it holds the twin's lock, and whoever deletes the twin passes it on.
    """
    path = own_path(document)
    if document.parsed_path == path and document.parsed_sha256 != parse.sha256:
        with transaction.atomic():
            lock(document.pk)
            transfer_shared_parse(document)
    twin = find_shared_parse(document, parse.sha256)
    if twin is not None:
        return str(twin.parsed_path)
    bucket, name = storage.locate(path)
    bucket.put(name, parse.content)
    return path


def delete_own_parse(document: Document, path: str) -> None:
    """Remove the document's own text when ``path``, a twin's, has been recorded instead of it."""
    if document.parsed_path == own_path(document) != path:
        with transaction.atomic():
            lock(document.pk)
            transfer_shared_parse(document)  # to who borrowed it before another path was recorded
            bucket, name = storage.locate(own_path(document))
            bucket.delete(name)


def record_parse(document: Document, parse: ParseResult, path: str) -> dict[str, Any]:
    """Write the parse into the document's row, in the caller's transaction; return what its job learns."""
    sha256 = parse.sha256
    Document.objects.filter(pk=document.pk).update(
        parsed_path=path,
        parsed_sha256=sha256,
        page_starts=list(parse.page_starts),
        parser_name=parse.parser.name,
        parser_version=parse.parser.version,
        failed_pages=list(parse.failed),
        parse_fallback=parse.is_fallback,
        updated_at=Now(),
    )
    ScannedPage.objects.filter(document_id=document.pk).delete()
    fields = job_fields(path, sha256)
    if sha256 != document.parsed_sha256:
        fields["progress"] = NO_CHUNKS
    return fields


def job_fields(path: str | None, sha256: str | None) -> dict[str, Any]:
    payload = {"parsed_path": path, "parsed_sha256": sha256}
    return {"parsed_path": path, "parsed_sha256": sha256, "payload": payload}


def transfer_shared_parse(document: Document) -> None:
    """Give the text that this document's path holds to a twin that shares it, before the path's content goes.

    In a transaction that holds the document's lock.
    """
    path = own_path(document)
    heir = _heir(document, path)
    if heir is None:
        return
    bucket, name = storage.locate(path)
    if not bucket.exists(name):  # nothing to inherit: the audit names whoever points there
        return
    target, heirs = own_path(heir), Document.objects.filter(user_id=document.user_id, parsed_path=path)
    bucket.put(storage.locate(target)[1], bucket.read(name))
    ids = list(heirs.exclude(pk=document.pk).values_list("pk", flat=True))
    heirs.filter(pk__in=ids).update(parsed_path=target)
    UploadJob.objects.filter(document_id__in=ids, parsed_path=path).update(parsed_path=target)


def _heir(document: Document, path: str) -> Document | None:
    """Return the oldest twin that shares the path, locked: it cannot be deleted before it has inherited."""
    sharing = Document.objects.filter(user_id=document.user_id, parsed_path=path).exclude(pk=document.pk)
    for heir in sharing.order_by("created_at", "pk"):
        lock(heir.pk)
        if sharing.filter(pk=heir.pk).exists():
            return heir
    return None


def lock_shared_parse(document: Document, path: str) -> bool:
    """Hold the lock of the twin whose path is lent until the transaction ends; False when it was lost meanwhile."""
    if path == own_path(document):
        return True
    owner = UUID(PurePath(path).stem)
    lock(owner)
    return Document.objects.filter(pk=owner, parsed_path=path).exists()
