"""Stage handlers from the declared upload to verified markdown: receive, request_parse, parse, check_parse."""

import hashlib
from collections.abc import Sequence
from decimal import Decimal
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

from documents import parsers, storage
from documents.error_codes import (
    PARSE_FAILED,
    PARSE_HASH_MISMATCH,
    PARSE_MALFORMED,
    PARSE_TWIN_GONE,
    TOO_MANY_PAGES,
    UPLOAD_EXPIRED,
    WAITING_FOR_UPLOAD,
)
from documents.ids import parse_id
from documents.markdown.normalization import normalize_pages
from documents.models import Document, ParseRequest
from documents.parsers import registry
from documents.parsers.errors import parse_failure
from documents.parsers.registry import Parser
from documents.parsing import ocr_pages, parse_requests, parse_store
from documents.parsing.ocr_pages import OcrPages
from documents.parsing.parse_requests import CollectedParse
from documents.parsing.parse_store import ParseResult
from documents.services import UPLOAD_GRACE_SECONDS
from documents.storage import object_deletions, original_file
from jobs import failpoints
from jobs.claims import Claim, ClaimLost
from jobs.lifecycle import log_event
from jobs.models import Event
from jobs.outcomes import Advance, Outcome, Permanent, Retryable, Wait
from vendors import ledger


def receive(claim: Claim) -> Outcome:
    """Stage queued: wait for the bytes, then check that they are the declared ones and a PDF that can be opened."""
    document = claim.job.document
    bucket, name = storage.locate(document.raw_path)
    if not bucket.exists(name):
        raise _wait_for_bytes(document, bucket.poll_seconds)
    try:
        with original_file.verified_original(document) as path:
            inspection = parsers.inspect_pdf(path)
    except original_file.ContentMismatch:
        bucket.delete(name)  # or the right bytes, declared again, would never be checked
        raise
    if inspection.pages > settings.MAX_PAGES:
        raise Permanent(TOO_MANY_PAGES, f"The PDF has more than {settings.MAX_PAGES} pages.")
    payload = {  # of job_validated (MVP context §6)
        "user_id": str(document.user_id),
        "document_id": str(document.pk),
        "file_sha256": document.file_sha256,
        "bytes_len": document.bytes_len,
        "mime": document.mime,
        "storage_path": document.raw_path,
    }
    with claim.transaction(durable=False):
        Document.objects.filter(pk=document.pk).update(pages=inspection.pages, stored_at=Now(), updated_at=Now())
        return claim.advance(event={"pages": inspection.pages}, payload=payload)


def _wait_for_bytes(document: Document, poll_seconds: float) -> Wait:
    """Return the wait until the upload's URL has expired, by the database's clock: this machine's may be wrong."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM %s - clock_timestamp())::float8", [document.upload_expires_at])
        left = (cursor.fetchone()[0] or 0.0) + UPLOAD_GRACE_SECONDS
    if left <= 0:
        raise Permanent(UPLOAD_EXPIRED)
    # Most uploads come at once or never: the longer the wait, the rarer the polls.
    waited = settings.SIGNED_URL_SECONDS + UPLOAD_GRACE_SECONDS - left
    return Wait(seconds=min(left + 0.1, max(poll_seconds, waited / 4)), reason=WAITING_FOR_UPLOAD)


def request_parse(claim: Claim) -> Outcome:
    """Stage job_validated: choose the parser, predict the cost, and submit the parse if it is a vendor's."""
    document = claim.job.document
    parser, is_fallback = _choose_parser(document)
    pages, parse = document.pages or 1, parse_id(document.pk, parser.name, parser.version)
    # The parse is priced by page; the embeddings by tokens, TOKENS_PER_PAGE of them a page.
    tokens = pages * settings.TOKENS_PER_PAGE
    cents = ledger.parse_price(pages) if parser.uses_vendor else Decimal(0)
    if settings.EMBEDDER == "openai":
        cents += ledger.embedding_price(tokens)
    plan = {
        "parser_name": parser.name,
        "parser_version": parser.version,
        "source_path": document.raw_path,
        "parse_id": str(parse),
        "parse_fallback": is_fallback,
        "predicted_tokens": tokens,
        "predicted_cents": float(cents),
    }
    if not parser.uses_vendor or parse_store.is_stored(document, parser):
        return Advance("PARSE_REQUESTED", fields={"payload": plan}, payload={"parser": parser.name})
    if not parse_requests.is_paid(parse):
        ledger.require_budget(document.user_id, cents)
    return parse_requests.submit_parse(claim, parser, plan)


def _choose_parser(document: Document) -> tuple[Parser, bool]:
    """Return the parser and whether it is the fallback: the vendor is unavailable and nothing is bought yet."""
    parser = registry.configured_parser(ocr=document.ocr)
    if not (parser.uses_vendor and settings.PARSE_FALLBACK and parse_requests.is_vendor_unavailable()):
        return parser, False
    bought = ParseRequest.objects.filter(document=document, parser_version=parser.version, purchase_id__isnull=False)
    if bought.exclude(state=ParseRequest.State.FAILED).exists():
        return parser, False
    return registry.local_parser(ocr=document.ocr), True


def parse(claim: Claim) -> Outcome:
    """Stage parsing: convert the PDF to normalized markdown, locally or at a vendor; a stored parse is reused."""
    document, plan = claim.job.document, claim.job.payload
    local = registry.local_parser(ocr=document.ocr)
    parser = Parser(plan.get("parser_name", local.name), plan.get("parser_version", local.version))
    if parse_store.is_stored(document, parser):
        return Advance("PARSE_REUSED", fields=parse_store.job_fields(document.parsed_path, document.parsed_sha256))
    if parser.uses_vendor:
        collected = parse_requests.collect_parse(claim, UUID(plan["parse_id"]))
        return _store_vendor_parse(claim, parser, collected)
    with original_file.verified_original(document) as path:
        pages = parsers.parse_pdf(path, pages=document.pages or 1)
        scan = ocr_pages.recognize_blank_pages(claim, path, pages, parser.version) if document.ocr else OcrPages(pages)
    is_fallback = bool(plan.get("parse_fallback"))
    return _store(claim, _build_parse(document, parser, scan.pages, failed=scan.failed, is_fallback=is_fallback))


def _build_parse(
    document: Document, parser: Parser, pages: Sequence[str], *, failed: tuple[int, ...], is_fallback: bool = False
) -> ParseResult:
    normalized = normalize_pages(pages)
    if not normalized.text.strip():
        raise parse_failure("NO_TEXT_FOUND" if document.ocr else "NO_TEXT_LAYER")
    return ParseResult.from_pages(parser, normalized, failed=failed, is_fallback=is_fallback)


def _store_vendor_parse(claim: Claim, parser: Parser, collected: CollectedParse) -> Outcome:
    """Store the vendor's pages in order; the pages that it failed on are blank and listed."""
    parse = collected.parse
    if not any(text.strip() for text in parse.pages.values()):  # useless, but charged
        with claim.transaction():
            claim.save_progress(total_pct=0, cost_cents=collected.settle())
    if not parse.pages:
        raise Permanent(PARSE_FAILED, "The parsing service could not parse any page of this PDF.")
    pages = [parse.pages.get(number, "") for number in range(1, collected.pages + 1)]
    return _store(claim, _build_parse(claim.job.document, parser, pages, failed=parse.failed), collected)


def _store(claim: Claim, parse: ParseResult, collected: CollectedParse | None = None) -> Outcome:
    document = claim.job.document
    claim.ensure_held()  # a document that was deleted while it was parsed gets no new object
    path = parse_store.write_parse(document, parse)
    failpoints.failpoint("parsing:stored")
    try:
        with transaction.atomic():
            if not parse_store.lock_shared_parse(document, path):
                raise Retryable(PARSE_TWIN_GONE, "The document that shared the text was deleted; storing it again.")
            with claim.transaction():
                fields = parse_store.record_parse(document, parse, path)
                if collected is not None:
                    fields["cost_cents"] = collected.settle()
                if parse.failed:
                    severity, payload = Event.Severity.WARN, {"pages": list(parse.failed)}
                    log_event(claim.job, "PARSE_PAGES_FAILED", Event.Type.STAGE_DONE, severity, payload)
                if path != parse_store.own_path(document):
                    log_event(claim.job, "PARSE_DEDUP_HIT", Event.Type.STAGE_DONE)
                moved = claim.advance(code="PARSE_STORED", event={"bytes": len(parse.content)}, **fields)
    except ClaimLost:
        object_deletions.delete_pending_objects(document.pk)  # nothing, unless the document was deleted meanwhile
        raise
    parse_store.delete_own_parse(document, path)
    return moved


def check_parse(claim: Claim) -> Outcome:
    """Stage parsed: check that the stored markdown has the recorded hash and that its page starts lie within it."""
    document = claim.job.document
    content = parse_store.read_bytes(document)
    if hashlib.sha256(content).hexdigest() != document.parsed_sha256:
        with claim.transaction():
            log_event(claim.job, "PARSE_HASH_MISMATCH", Event.Type.ERROR, Event.Severity.ERROR)
        raise Permanent(PARSE_HASH_MISMATCH)
    starts, text = document.page_starts or [], content.decode()
    # The text of a callback may come without page starts: then no page is known.
    if starts and (len(starts) != document.pages or starts != sorted(starts) or starts[-1] > len(text)):
        raise Permanent(PARSE_MALFORMED, "The parsed text does not fit its pages.")
    return Advance()
