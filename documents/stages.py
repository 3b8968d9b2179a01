"""Stage handlers from the declared upload to verified markdown: receive, request_parse, parse, check_parse."""

import hashlib
import time
from functools import partial
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

from documents import (
    error_codes,
    object_deletion,
    ocr_batches,
    parse_store,
    replacement_parses,
    vendor_parses,
    verified_original,
)
from documents.deterministic_ids import parse_id
from documents.markdown import structure
from documents.markdown.normalization import normalize_pages
from documents.models import Document
from documents.parse_store import ParseResult
from documents.parsers import pdf_parser, registry
from documents.parsers.failures import parse_failure
from documents.parsers.pdf_parser import Inspection, ParsedPdf
from documents.parsers.registry import Parser
from documents.replacement_parses import REPARSE
from documents.services import UPLOAD_GRACE_SECONDS
from documents.storage import buckets
from documents.vendor_parses import CollectedParse
from documents.verified_original import ContentMismatch
from jobs import failpoints
from jobs.claims import Claim, ClaimLost
from jobs.lifecycle import log_event
from jobs.models import Event, UploadJob
from jobs.outcomes import Advance, Outcome, Permanent, Retryable, Wait
from vendors import ledger


def receive(claim: Claim) -> Outcome:
    """Stage queued: wait for the bytes, then check that they are the declared ones and a PDF that can be opened."""
    document = claim.job.document
    bucket, name = buckets.locate(document.raw_path)
    if not bucket.exists(name):
        raise _wait_for_bytes(document, bucket.poll_seconds)
    try:
        with verified_original.verified_original(document) as path:
            inspection, parsed, parse_seconds = _inspect(claim, path)
    except ContentMismatch:
        bucket.delete(name)  # or the right bytes, declared again, would never be checked
        raise
    if inspection.pages > settings.MAX_PAGES:
        detail = f"The PDF has {inspection.pages} pages; the limit is {settings.MAX_PAGES}. Upload it in parts."
        raise Permanent(error_codes.TOO_MANY_PAGES, detail)
    payload = {  # of job_validated (MVP context §6)
        "user_id": str(document.user_id),
        "document_id": str(document.pk),
        "file_sha256": document.file_sha256,
        "bytes_len": document.bytes_len,
        "mime": document.mime,
        "storage_path": document.raw_path,
    }
    document.pages = inspection.pages

    def write() -> None:
        Document.objects.filter(pk=document.pk).update(pages=inspection.pages, stored_at=Now(), updated_at=Now())

    claim.done_ahead, claim.lead_seconds = parsed, parse_seconds
    return claim.end_stage(write, event={"pages": inspection.pages}, payload=payload)


def _inspect(claim: Claim, path: Path) -> tuple[Inspection, ParsedPdf | None, float]:
    """Inspect the PDF; parse it too if the stage that does so is next, and it takes no second (and no second child)."""
    is_local = registry.configured_parser(ocr=claim.job.document.ocr).name == pdf_parser.NAME
    if is_local and claim.shares_commits and claim.job.document.parsed_path is None:
        return pdf_parser.inspect_and_parse(path)
    return pdf_parser.inspect_pdf(path), None, 0.0


def _wait_for_bytes(document: Document, poll_seconds: float) -> Wait:
    """Return the wait until the upload's URL has expired, by the database's clock: this machine's may be wrong."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM %s - clock_timestamp())::float8", [document.upload_expires_at])
        left = (cursor.fetchone()[0] or 0.0) + UPLOAD_GRACE_SECONDS
    if left <= 0:
        raise Permanent(error_codes.UPLOAD_EXPIRED)
    # Most uploads come at once or never: the longer the wait, the rarer the polls.
    waited = settings.SIGNED_URL_SECONDS + UPLOAD_GRACE_SECONDS - left
    return Wait(seconds=min(left + 0.1, max(poll_seconds, waited / 4)), reason=error_codes.WAITING_FOR_UPLOAD)


def request_parse(claim: Claim) -> Outcome:
    """Stage job_validated: choose the parser, predict the cost, and submit the parse if it is a vendor's."""
    document, is_fallback = claim.job.document, False
    pages, read_by = document.pages or 1, claim.job.payload.get("read_by")  # of a reparse
    parser = registry.configured_parser(ocr=document.ocr, name=read_by)
    parse = parse_id(document.pk, parser.name, parser.version)
    is_local = parser.name == pdf_parser.NAME
    is_reparse = claim.job.pipeline == REPARSE  # to this parser, and no other one; a campaign pays
    is_paid = not is_local and vendor_parses.is_paid(parse)
    if (
        not (is_local or is_reparse)
        and settings.PARSE_FALLBACK
        and not is_paid
        and vendor_parses.is_vendor_unavailable()
    ):
        parser, is_local, is_fallback = registry.local_parser(ocr=document.ocr), True, True
        parse = parse_id(document.pk, parser.name, parser.version)
    tokens, cents = ledger.predict_price(pages, is_local=is_local)
    plan = {
        "parser_name": parser.name,
        "parser_version": parser.version,
        "source_path": document.raw_path,
        "parse_id": str(parse),
        "parse_fallback": is_fallback,
        "predicted_tokens": tokens,
        "predicted_cents": float(cents),
    }
    is_stored = not is_reparse and parse_store.is_stored(document, parser)
    if is_local or is_stored:
        progress = parse_store.pages_progress(pages, pages if is_stored else 0)
        return Advance(
            "PARSE_REQUESTED", fields={"payload": plan, "progress": progress}, payload={"parser": parser.name}
        )
    if not (is_paid or is_reparse):
        ledger.require_budget(document.user_id, cents)
    return vendor_parses.submit_parse(claim, parser, plan)


def parse(claim: Claim) -> Outcome:
    """Stage parsing: convert the PDF to normalized markdown, locally or at a vendor; a stored parse is reused."""
    document, plan = claim.job.document, claim.job.payload
    parser = Parser(plan["parser_name"], plan["parser_version"])
    if claim.job.pipeline != REPARSE and parse_store.is_stored(document, parser):
        return Advance("PARSE_REUSED", fields=parse_store.job_fields(document.parsed_path, document.parsed_sha256))
    collected: CollectedParse | None = None
    doubtful: tuple[int, ...] = ()
    if parser.name != pdf_parser.NAME:
        collected = vendor_parses.collect_parse(claim, UUID(plan["parse_id"]))
        pages, failed = _vendor_pages(claim, collected), collected.parse.failed
    else:
        pages, failed, doubtful, parser = _local_pages(claim, parser)
    normalized = normalize_pages(pages)
    if not normalized.text.strip():
        raise parse_failure("NO_TEXT_FOUND" if document.ocr else "NO_TEXT_LAYER")
    is_fallback = bool(plan.get("parse_fallback"))
    parse = ParseResult(parser, normalized.text, normalized.page_starts, failed, doubtful, is_fallback)
    return _store(claim, parse, collected)


def _local_pages(claim: Claim, parser: Parser) -> tuple[list[str], tuple[int, ...], tuple[int, ...], Parser]:
    """Return the pages, the numbers of those that could not be read, of those in doubtful order, and who read them."""
    document, failed = claim.job.document, set[int]()
    parsed: ParsedPdf | None = claim.done_ahead
    claim.done_ahead, claim.lead_seconds = None, 0.0
    if parsed is None or document.ocr:
        with verified_original.verified_original(document) as path:
            parsed = parsed or pdf_parser.parse_pdf(path, pages=document.pages or 1)
            pages = parsed.markdown
            if document.ocr:
                pages, unrecognized = ocr_batches.recognize_blank_pages(claim, path, pages, parser.version)
                failed.update(unrecognized)
    else:  # by the child that has inspected it, and verified then
        pages = parsed.markdown
    failed.update(number for number in parsed.unreadable if not pages[number - 1].strip())
    if not parsed.has_layout:
        parser = registry.local_parser(ocr=document.ocr, has_layout=False)
    return pages, tuple(sorted(failed)), tuple(parsed.doubtful), parser


def _vendor_pages(claim: Claim, collected: CollectedParse) -> list[str]:
    parse = collected.parse
    if not any(text.strip() for text in parse.pages.values()):  # useless, but charged
        with claim.transaction():
            claim.save_progress(total_pct=0, cost_cents=collected.settle())
    if not parse.pages:
        raise Permanent(error_codes.PARSE_FAILED, "The parsing service could not parse any page of this PDF.")
    return [parse.pages.get(number, "") for number in range(1, collected.pages + 1)]


def _store(claim: Claim, parse: ParseResult, collected: CollectedParse | None) -> Outcome:
    if claim.job.pipeline == REPARSE:
        return _stage(claim, parse, collected)
    document = claim.job.document
    claim.ensure_held()  # a document that was deleted while it was parsed gets no new object
    path = parse_store.write_parse(document, parse)
    failpoints.failpoint("parsing:stored")
    if collected is None and path == parse_store.own_path(document):
        return _end_parsing(claim, parse, path)
    try:
        with transaction.atomic():
            if not parse_store.lock_shared_parse(document, path):
                raise Retryable(error_codes.PARSE_TWIN_GONE)
            with claim.transaction():
                fields = parse_store.record_parse(document, parse, path)
                if collected is not None:
                    fields["cost_cents"] = collected.settle()
                _log_failed_pages(claim.job, parse)
                if path != parse_store.own_path(document):
                    log_event(claim.job, "PARSE_DEDUP_HIT", Event.Type.STAGE_DONE)
                moved = claim.advance(code="PARSE_STORED", event={"bytes": len(parse.content)}, **fields)
    except ClaimLost:
        object_deletion.delete_pending_objects(document.pk)  # nothing, unless the document was deleted meanwhile
        raise
    parse_store.delete_own_parse(document, path)
    return moved


def _end_parsing(claim: Claim, parse: ParseResult, path: str) -> Outcome:
    """End the stage with a parse that cost nothing and is shared with no twin."""
    document, job, ended = claim.job.document, claim.job, time.monotonic()
    fields, columns = parse_store.parse_fields(document, parse, path), parse_store.parse_columns(parse, path)
    for name, value in columns.items():
        setattr(document, name, value)

    def write() -> None:
        parse_store.write_parse_columns(document.pk, columns)
        _log_failed_pages(job, parse, age=time.monotonic() - ended)

    # A document that was deleted meanwhile has no row, and is to have no object.
    when_lost = partial(object_deletion.delete_pending_objects, document.pk)
    event = {"bytes": len(parse.content)}
    return claim.end_stage(write, when_lost=when_lost, code="PARSE_STORED", event=event, **fields)


def _log_failed_pages(job: UploadJob, parse: ParseResult, *, age: float = 0.0) -> None:
    if parse.failed:
        severity, payload = Event.Severity.WARN, {"pages": list(parse.failed)}
        log_event(job, "PARSE_PAGES_FAILED", Event.Type.STAGE_DONE, severity, payload, age=age)


def _stage(claim: Claim, parse: ParseResult, collected: CollectedParse | None) -> Outcome:
    """Keep the parse apart: the document is read and searched by its old one until the new one's vectors are in."""
    document = claim.job.document
    pages = document.pages or 1
    progress = {**parse_store.NO_CHUNKS, **parse_store.pages_progress(pages, pages - len(parse.failed))}
    fields = parse_store.job_fields(document.parsed_path, document.parsed_sha256)
    fields |= {"payload": {"staged_sha256": parse.sha256}, "progress": progress}
    former_text = parse_store.read_bytes(document).decode(errors="replace")
    with claim.transaction():
        replacement_parses.store_parse(document, parse, former_text)
        if collected is not None:
            fields["cost_cents"] = collected.settle()
        return claim.advance(code="PARSE_STORED", event={"bytes": len(parse.content)}, **fields)


def check_staged_parse(claim: Claim) -> Outcome:
    """Stage parsed of a reparse: check the pages of the new parse; count what is irregular in its structure."""
    parse = replacement_parses.load_parse(claim.job)
    if not structure.are_pages_complete(parse.text, parse.page_starts, claim.job.document.pages or 0):
        raise Permanent(error_codes.PARSE_MALFORMED, "The parsed text does not fit its pages.")
    warnings = structure.count_irregularities(parse.text)
    return Advance(payload=warnings, fields={"payload": {"parse_warnings": warnings}})


def check_parse(claim: Claim) -> Outcome:
    """Stage parsed: check hash and pages of the stored markdown; count what is irregular in its structure."""
    document = claim.job.document
    content = parse_store.read_bytes(document)
    if hashlib.sha256(content).hexdigest() != document.parsed_sha256:
        with claim.transaction():
            log_event(claim.job, "PARSE_HASH_MISMATCH", Event.Type.ERROR, Event.Severity.ERROR)
        raise Permanent(error_codes.PARSE_HASH_MISMATCH)
    text = content.decode()
    parse_store.require_pages(document, text)
    warnings = structure.count_irregularities(text)
    return Advance(payload=warnings, fields={"payload": {"parse_warnings": warnings}})
