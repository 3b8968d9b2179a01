"""From declared bytes to checked markdown: the handlers of the first five stages."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

from documents import parsers, services, storage
from documents.ids import parse_id
from documents.markdown.normalization import normalize_pages
from documents.models import Document, ParseRequest
from documents.parsers import registry
from documents.parsers.errors import parse_failure
from documents.parsers.registry import Parser
from documents.parsing import cost_estimate, ocr_pages, parse_requests, parse_store
from documents.parsing.ocr_pages import OcrPages
from documents.parsing.parse_requests import CollectedParse
from documents.parsing.parse_store import ParseResult
from documents.storage import original_file
from jobs import failpoints
from jobs.claims import Claim, ClaimLost
from jobs.events import log_event
from jobs.models import Event
from jobs.outcomes import Advance, Outcome, Permanent, Retryable, Wait
from vendors import ledger


def receive(claim: Claim) -> Outcome:
    """queued: wait for the bytes, then check that they are the declared ones and a PDF that can be opened."""
    document = claim.job.document
    bucket, name = storage.locate(document.raw_path)
    if not bucket.exists(name):
        return _wait_for_bytes(document.upload_expires_at, bucket.poll_seconds)
    try:
        with original_file.verified_original(document) as path:
            inspection = parsers.inspect_pdf(path)
    except original_file.ContentMismatch:
        bucket.delete(name)  # or the right bytes, declared again, would never be looked at
        raise
    if inspection.pages > settings.MAX_PAGES:
        raise Permanent("TOO_MANY_PAGES", f"The PDF has more than {settings.MAX_PAGES} pages.")
    with claim.transaction(durable=False):
        Document.objects.filter(pk=document.pk).update(pages=inspection.pages, stored_at=Now(), updated_at=Now())
        return claim.advance(event={"pages": inspection.pages}, payload=_validated(document))


def _wait_for_bytes(expires: datetime | None, poll: float) -> Wait:
    """Wait until the upload's URL has expired, by the database's clock: ours may be wrong."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM %s - clock_timestamp())::float8", [expires])
        left = (cursor.fetchone()[0] or 0.0) + services.UPLOAD_GRACE_SECONDS
    if left <= 0:
        raise Permanent("UPLOAD_EXPIRED", "The file was never uploaded; ask for a new URL.")
    # Most uploads come at once or never: the longer it lasts, the rarer it is worth a look.
    waited = settings.SIGNED_URL_SECONDS + services.UPLOAD_GRACE_SECONDS - left
    return Wait(seconds=min(left + 0.1, max(poll, waited / 4)), reason="WAITING_FOR_UPLOAD")


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
    """job_validated: name the parser and the price. The local one works in the next stage; a vendor's is asked here."""
    document = claim.job.document
    parser, is_fallback = _parser(document)
    pages, made = document.pages or 1, parse_id(document.pk, parser.name, parser.version)
    predicted = cost_estimate.predict(pages, is_parse_bought=parser.uses_vendor)
    plan = {
        "parser_name": parser.name,
        "parser_version": parser.version,
        "source_path": document.raw_path,
        "parse_id": str(made),
        "parse_fallback": is_fallback,
        "predicted_tokens": predicted.tokens,
        "predicted_cents": float(predicted.cents),
    }
    if not parser.uses_vendor or parse_store.is_stored(document, parser):
        return Advance("PARSE_REQUESTED", fields={"payload": plan}, payload={"parser": parser.name})
    if not parse_requests.is_paid(made):
        ledger.require_budget(document.user_id, predicted.cents)
    return parse_requests.submit_parse(claim, parser, plan)


def _parser(document: Document) -> tuple[Parser, bool]:
    """Choose the parser; while the vendor is away the local one stands in, if that is wanted and nothing is bought."""
    parser = registry.configured_parser(ocr=document.ocr)
    if not (parser.uses_vendor and settings.PARSE_FALLBACK and parse_requests.is_vendor_unavailable()):
        return parser, False
    asked = ParseRequest.objects.filter(document=document, parser_version=parser.version, purchase_id__isnull=False)
    if asked.exclude(state=ParseRequest.State.FAILED).exists():
        return parser, False
    return registry.local_parser(ocr=document.ocr), True


def parse(claim: Claim) -> Outcome:
    """parsing: make normalized markdown of the PDF, in a capped child or at a vendor's; a stored parse is reused."""
    document, plan = claim.job.document, claim.job.payload
    local = registry.local_parser(ocr=document.ocr)
    parser = Parser(plan.get("parser_name", local.name), plan.get("parser_version", local.version))
    if parse_store.is_stored(document, parser):
        return Advance("PARSE_REUSED", fields=parse_store.job_fields(document.parsed_path, document.parsed_sha256))
    if parser.uses_vendor:
        collected = parse_requests.collect_parse(claim, UUID(plan["parse_id"]))
        return collected if isinstance(collected, Wait) else _store_bought(claim, parser, collected)
    with original_file.verified_original(document) as path:
        pages = parsers.parse_pdf(path, pages=document.pages or 1)
        read = ocr_pages.recognize_blank_pages(claim, path, pages, parser.version) if document.ocr else OcrPages(pages)
    if isinstance(read, Wait):
        return read
    _require_text(read.pages, ocr=document.ocr)
    found = ParseResult.from_pages(
        parser, normalize_pages(read.pages), failed=read.failed, is_fallback=bool(plan.get("parse_fallback"))
    )
    return _store(claim, found)


def _require_text(pages: Sequence[str], *, ocr: bool) -> None:
    if not normalize_pages(pages).text.strip():
        raise parse_failure("NO_TEXT_FOUND" if ocr else "NO_TEXT_LAYER")


def _store_bought(claim: Claim, parser: Parser, collected: CollectedParse) -> Outcome:
    """Keep what the vendor made: its pages in order, those that it gave up on blank and named."""
    look = collected.look
    if not any(text.strip() for text in look.pages.values()):  # of no use, and charged for all the same
        with claim.transaction():
            claim.save_progress(total_pct=0, cost_cents=collected.settle())
    if not look.pages:
        raise Permanent("PARSE_FAILED", "The parsing service could not parse any page of this PDF.")
    pages = [look.pages.get(number, "") for number in range(1, collected.pages + 1)]
    _require_text(pages, ocr=claim.job.document.ocr)
    return _store(claim, ParseResult.from_pages(parser, normalize_pages(pages), failed=look.failed), collected)


def _store(claim: Claim, parse: ParseResult, collected: CollectedParse | None = None) -> Outcome:
    document = claim.job.document
    claim.ensure_held()  # a document that was deleted while it was parsed gets no new object
    path = parse_store.write_parse(document, parse)
    failpoints.failpoint("parsing:stored")
    try:
        with transaction.atomic():
            if not parse_store.lock_shared_parse(document, path):
                raise Retryable(
                    "PARSE_TWIN_GONE", "The document that had the same text was deleted; it is stored anew."
                )
            with claim.transaction():
                moved = _recorded(claim, parse, path, collected)
    except ClaimLost:
        services.delete_pending_objects(document.pk)  # nothing, unless the document was deleted meanwhile
        raise
    parse_store.delete_own_parse(document, path)
    return moved


def _recorded(claim: Claim, parse: ParseResult, path: str, collected: CollectedParse | None) -> Outcome:
    fields = parse_store.record_parse(claim.job.document, parse, path)
    if collected is not None:
        fields["cost_cents"] = collected.settle()
    if parse.failed:
        severity, payload = Event.Severity.WARN, {"pages": list(parse.failed)}
        log_event(claim.job, "PARSE_PAGES_FAILED", Event.Type.STAGE_DONE, severity, payload)
    if path != parse_store.own_path(claim.job.document):
        log_event(claim.job, "PARSE_DEDUP_HIT", Event.Type.STAGE_DONE)
    return claim.advance(code="PARSE_STORED", event={"bytes": len(parse.content)}, **fields)


def check_parse(claim: Claim) -> Outcome:
    """parsed: prove that the stored markdown is the one that was recorded, and that its pages lie within it."""
    document = claim.job.document
    content = parse_store.read_bytes(document)
    if hashlib.sha256(content).hexdigest() != document.parsed_sha256:
        with claim.transaction():
            log_event(claim.job, "PARSE_HASH_MISMATCH", Event.Type.ERROR, Event.Severity.ERROR)
        raise Permanent("PARSE_HASH_MISMATCH", "The parsed text was changed in the store; retrying parses it again.")
    starts, text = document.page_starts or [], content.decode()
    # A callback that brings the text may not say where its pages begin: then it begins no page.
    if starts and (len(starts) != document.pages or starts != sorted(starts) or starts[-1] > len(text)):
        raise Permanent("PARSE_MALFORMED", "The parsed text does not fit its pages.")
    return Advance()
