"""From declared bytes to checked markdown: the handlers of the first five stages."""

from __future__ import annotations

import hashlib
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models.functions import Now

from documents import parsers, services, storage
from documents.ids import parse_id
from documents.models import Document
from documents.normalization import NormalizedPages, normalize_pages
from jobs import crashpoints
from jobs.claims import Claim, Superseded
from jobs.journal import log_event
from jobs.models import Event
from jobs.outcomes import Advance, Outcome, Permanent, Wait

# Uploads that began just before their URL expired may still be under way.
LATE_SECONDS = 60.0
# Another text makes what was cut of the old one count for nothing: no later stage may be passed over on its account.
UNCUT = {"chunks_total": 0, "chunks_done": 0, "embeds_total": 0, "embeds_done": 0}


def receive(claim: Claim) -> Outcome:
    """queued: wait for the bytes, then check that they are the declared ones and a PDF that can be opened."""
    document = claim.job.document
    bucket, name = storage.located(document.raw_path)
    if not bucket.exists(name):
        return _wait_for_bytes(document.upload_expires_at, bucket.poll_seconds)
    with bucket.local(name) as path:
        if failure := _other_bytes(document, path):
            bucket.delete(name)  # or the right bytes, declared again, would never be looked at
            raise failure
        inspection = parsers.inspect(path)
    if inspection.pages > settings.MAX_PAGES:
        raise Permanent("TOO_MANY_PAGES", f"The PDF has more than {settings.MAX_PAGES} pages.")
    with claim.held():
        Document.objects.filter(pk=document.pk).update(pages=inspection.pages, stored_at=Now(), updated_at=Now())
        return claim.advance(event={"pages": inspection.pages}, payload=_validated(document))


def _wait_for_bytes(expires: datetime | None, poll: float) -> Wait:
    """Wait until the upload's URL has expired, by the database's clock: ours may be wrong."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM %s - clock_timestamp())::float8", [expires])
        left = (cursor.fetchone()[0] or 0.0) + LATE_SECONDS
    if left <= 0:
        raise Permanent("UPLOAD_EXPIRED", "The file was never uploaded; ask for a new URL.")
    return Wait(seconds=min(left + 0.1, poll), reason="WAITING_FOR_UPLOAD")


def _other_bytes(document: Document, path: Path) -> Permanent | None:
    if path.stat().st_size != document.bytes_len:
        return Permanent("LENGTH_MISMATCH", "The file is not as long as was declared.")
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != document.file_sha256:
            return Permanent("HASH_MISMATCH", "The file is not the one whose sha256 was declared.")
    return None


def _validated(document: Document) -> dict[str, object]:
    """Return the payload of ``job_validated`` (MVP context §6)."""
    return {
        "user_id": str(document.user_id),
        "document_id": str(document.pk),
        "file_sha256": document.file_sha256,
        "bytes_len": document.bytes_len,
        "mime": document.mime,
        "storage_path": document.raw_path,
    }


def request_parse(claim: Claim) -> Outcome:
    """job_validated: name the parser. The local one works in the next stage; a vendor's is asked here."""
    document = claim.job.document
    request = {
        "parser_name": parsers.NAME,
        "parser_version": parsers.VERSION,
        "source_path": document.raw_path,
        "parse_id": str(parse_id(document.pk, parsers.NAME, parsers.VERSION)),
    }
    return Advance("PARSE_REQUESTED", fields={"payload": request}, payload={"parser": parsers.NAME})


def parse(claim: Claim) -> Outcome:
    """parsing: turn the PDF into normalized markdown, in a capped child; a stored parse is not made again."""
    document = claim.job.document
    if _parsed_before(document):
        return Advance("PARSE_REUSED", fields=_parse_fields(document.parsed_path, document.parsed_sha256))
    bucket, name = storage.located(document.raw_path)
    with bucket.local(name) as path:
        pages = parsers.parse(path, pages=document.pages or 1)
    parsers.require_text(pages)
    normalized = normalize_pages(pages)
    if not normalized.text.strip():
        raise Permanent("NO_TEXT_LAYER", "This PDF has no text layer; it needs OCR.")
    return _store(claim, document, normalized)


def _store(claim: Claim, document: Document, parsed: NormalizedPages) -> Outcome:
    content = parsed.text.encode()
    path = storage.uri("parsed", document.user_id, document.pk, "md")
    bucket, name = storage.located(path)
    with claim.held():
        pass  # a document that was deleted while it was parsed gets no new object
    bucket.put(name, content)
    try:
        return _record(claim, document, parsed, path, content)
    except Superseded:
        services.remove_objects(document.pk)  # nothing, unless the document was deleted meanwhile
        raise


def _record(claim: Claim, document: Document, parsed: NormalizedPages, path: str, content: bytes) -> Outcome:
    sha256 = hashlib.sha256(content).hexdigest()
    crashpoints.reach("parsing:stored")
    with claim.held():
        Document.objects.filter(pk=document.pk).update(
            parsed_path=path,
            parsed_sha256=sha256,
            page_starts=list(parsed.page_starts),
            parser_name=parsers.NAME,
            parser_version=parsers.VERSION,
            updated_at=Now(),
        )
        fields = _parse_fields(path, sha256)
        if sha256 != document.parsed_sha256:
            fields["progress"] = UNCUT
        return claim.advance(code="PARSE_STORED", event={"bytes": len(content)}, **fields)


def _parsed_before(document: Document) -> bool:
    same = (document.parser_name, document.parser_version) == (parsers.NAME, parsers.VERSION)
    if not same or not document.parsed_path:
        return False
    bucket, name = storage.located(document.parsed_path)
    return bucket.exists(name) and hashlib.sha256(bucket.read(name)).hexdigest() == document.parsed_sha256


def _parse_fields(path: str | None, sha256: str | None) -> dict[str, Any]:
    payload = {"parsed_path": path, "parsed_sha256": sha256}
    return {"parsed_path": path, "parsed_sha256": sha256, "payload": payload}


def check_parse(claim: Claim) -> Outcome:
    """parsed: prove that the stored markdown is the one that was recorded, and that its pages lie within it."""
    document = claim.job.document
    content = _parsed_bytes(document)
    if hashlib.sha256(content).hexdigest() != document.parsed_sha256:
        with claim.held():
            log_event(claim.job, "PARSE_HASH_MISMATCH", Event.Type.ERROR, Event.Severity.ERROR)
        raise Permanent("PARSE_HASH_MISMATCH", "The parsed text was changed in the store; retrying parses it again.")
    starts, text = document.page_starts or [], content.decode()
    if len(starts) != document.pages or starts != sorted(starts) or (starts and starts[-1] > len(text)):
        raise Permanent("PARSE_MALFORMED", "The parsed text does not fit its pages.")
    return Advance()


def _parsed_bytes(document: Document) -> bytes:
    bucket, name = storage.located(document.parsed_path or "")
    return bucket.read(name) if bucket.exists(name) else b""


def parsed_text(document: Document) -> str:
    """Return the normalized markdown of a document that has been parsed."""
    return _parsed_bytes(document).decode()
