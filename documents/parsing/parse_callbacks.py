"""What a signed callback may do to a parse. The poller does the same; whoever is second changes nothing.

| the callback is      | its job is                       | what happens                                          |
|----------------------|----------------------------------|-------------------------------------------------------|
| the first, in time   | waiting for the vendor           | stored and moved on; a poller at work loses its claim |
| repeated, or late    | past parsing, with the same text | ALREADY_PARSED, nothing                               |
| contradictory        | past parsing, with another text  | refused, CALLBACK_CONTRADICTS                         |
| early (reordered)    | not submitted yet                | refused, JOB_NOT_PARSING: sent again, or polled for   |
| for a job that ended | dead-lettered while parsing      | refused, JOB_NOT_PARSING: a retry asks the vendor     |
| without content      | waiting for the vendor           | the poller looks at once                              |
"""

from __future__ import annotations

from http import HTTPStatus

from django.db.models.functions import Now

from accounts.errors import ApiError, not_found
from documents.locks import lock
from documents.markdown.normalization import normalize_pages
from documents.models import Document, ParseRequest
from documents.parsers.registry import Parser, VendorParse
from documents.parsing import parse_store
from documents.parsing.parse_requests import CollectedParse
from documents.parsing.parse_store import ParseResult
from jobs import services
from jobs.models import UploadJob
from jobs.states import ACTIVE, Stage

# What LlamaParse puts between two pages when it gives a document as one text.
PAGE_SEPARATOR = "\n---\n"


def wake_poller(asked: ParseRequest) -> bool:
    """Let the worker look at a parse at once, in the caller's transaction; False when it was collected before."""
    pending = ParseRequest.objects.filter(pk=asked.pk, state=ParseRequest.State.SUBMITTED)
    if not pending.exists():
        return False
    services.wake_job(asked.document_id)  # first: a worker too locks the job before its parse
    return bool(pending.update(called_back_at=Now()))


def store_callback(*, job: UploadJob, content: str, parser_name: str, parser_version: str) -> str:
    """Store the markdown that a callback brought and move its job on, in the caller's transaction.

    Returns "PARSE_STORED" or "ALREADY_PARSED"; raises ``Refused`` as the table above says. The version that is recorded
    is the one that was asked for: ``parser_version`` may name it by another scheme.
    """
    lock(job.document_id)
    locked = UploadJob.objects.select_for_update().filter(pk=job.pk).first()
    document = Document.objects.filter(pk=job.document_id).first()
    if locked is None or document is None:
        raise not_found()
    asked = _asked(locked)
    if asked is None or asked.parser_name != parser_name:
        raise _not_parsing()
    parse = _parse(document, asked, content)
    if asked.state == ParseRequest.State.COLLECTED:
        return _again(document, parse)
    if locked.stage != Stage.PARSING or locked.state not in ACTIVE or asked.state != ParseRequest.State.SUBMITTED:
        raise _not_parsing()
    _store(locked, document, asked, parse)
    return "PARSE_STORED"


def _asked(job: UploadJob) -> ParseRequest | None:
    return ParseRequest.objects.filter(pk=job.payload.get("parse_id")).first()


def _parse(document: Document, asked: ParseRequest, content: str) -> ParseResult:
    """Normalize; where the text does not divide into the document's pages, no page is claimed for any of it."""
    pages = content.split(PAGE_SEPARATOR)
    parser = Parser(asked.parser_name, asked.parser_version)
    if len(pages) == document.pages:
        return ParseResult.from_pages(parser, normalize_pages(pages))
    whole = ParseResult.from_pages(parser, normalize_pages([content]))
    return ParseResult(parser, whole.text, ())


def _again(document: Document, parse: ParseResult) -> str:
    if parse.sha256 != document.parsed_sha256:
        detail = "Another text of this document has been delivered before."
        raise ApiError("CALLBACK_CONTRADICTS", detail, status=HTTPStatus.CONFLICT)
    return "ALREADY_PARSED"


def _store(job: UploadJob, document: Document, asked: ParseRequest, parse: ParseResult) -> None:
    if not parse.text.strip():
        raise ApiError("ARTIFACT_EMPTY", "The artifact has no text.", status=HTTPStatus.UNPROCESSABLE_ENTITY)
    path = parse_store.write_parse(document, parse)
    if not parse_store.lock_shared_parse(document, path):
        raise _not_parsing()
    fields = parse_store.record_parse(document, parse, path)
    fields["cost_cents"] = CollectedParse(asked, VendorParse("completed", {}), document.pages or 1).settle()
    services.complete_wait(job, code="PARSE_STORED", event={"bytes": len(parse.content), "by": "callback"}, **fields)


def _not_parsing() -> ApiError:
    detail = "The job does not wait for a parse."
    return ApiError("JOB_NOT_PARSING", detail, status=HTTPStatus.CONFLICT)
