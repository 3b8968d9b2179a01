"""Signed callbacks of the parsing vendor. The poller does the same; whichever is second changes nothing.

| the callback is      | its job is                       | what happens                                          |
|----------------------|----------------------------------|-------------------------------------------------------|
| the first, in time   | waiting for the vendor           | stored and advanced; a working poller loses its claim |
| repeated, or late    | past parsing, with the same text | ALREADY_PARSED, nothing                               |
| contradictory        | past parsing, with another text  | refused, CALLBACK_CONTRADICTS                         |
| early (reordered)    | not submitted yet                | refused, JOB_NOT_PARSING: sent again, or polled for   |
| for a job that ended | dead-lettered while parsing      | refused, JOB_NOT_PARSING: a retry asks the vendor     |
| without content      | waiting for the vendor           | the poller runs at once                               |
"""

from django.db.models.functions import Now

from accounts.error_codes import ApiError, not_found
from documents.error_codes import ARTIFACT_EMPTY, CALLBACK_CONTRADICTS, JOB_NOT_PARSING
from documents.locks import lock_document
from documents.markdown.normalization import normalize_pages
from documents.models import Document, ParseRequest
from documents.parsers.registry import Parser, VendorParse
from documents.parsing import parse_store
from documents.parsing.parse_requests import CollectedParse
from documents.parsing.parse_store import ParseResult
from jobs import services
from jobs.choices import ACTIVE, Stage
from jobs.models import UploadJob

# LlamaParse's separator of pages in the text of a whole document.
PAGE_SEPARATOR = "\n---\n"


def wake_poller(request: ParseRequest) -> bool:
    """Let the worker poll a parse at once, in the caller's transaction; False when it was collected before."""
    pending = ParseRequest.objects.filter(pk=request.pk, state=ParseRequest.State.SUBMITTED)
    if not pending.exists():
        return False
    services.wake_job(request.document_id)  # first: a worker too locks the job before its parse
    return bool(pending.update(called_back_at=Now()))


def store_callback(*, job: UploadJob, content: str, parser_name: str, parser_version: str) -> str:
    """Store the markdown of a callback and advance its job, in the caller's transaction.

    Returns "PARSE_STORED" or "ALREADY_PARSED"; raises ``ApiError`` as the table above says. The recorded version is the
    requested one: ``parser_version`` may use another scheme.
    """
    lock_document(job.document_id)
    locked = UploadJob.objects.select_for_update().filter(pk=job.pk).first()
    document = Document.objects.filter(pk=job.document_id).first()
    if locked is None or document is None:
        raise not_found()
    request = ParseRequest.objects.filter(pk=locked.payload.get("parse_id")).first()
    if request is None or request.parser_name != parser_name:
        raise ApiError(JOB_NOT_PARSING, "The job does not wait for a parse.")
    pages = content.split(PAGE_SEPARATOR)
    has_pages = len(pages) == document.pages
    normalized = normalize_pages(pages if has_pages else [content])
    parser = Parser(request.parser_name, request.parser_version)
    parse = ParseResult(parser, normalized.text, normalized.page_starts if has_pages else ())
    if request.state == ParseRequest.State.COLLECTED:
        if parse.sha256 != document.parsed_sha256:
            detail = "Another text of this document has been delivered before."
            raise ApiError(CALLBACK_CONTRADICTS, detail)
        return "ALREADY_PARSED"
    if locked.stage != Stage.PARSING or locked.state not in ACTIVE or request.state != ParseRequest.State.SUBMITTED:
        raise ApiError(JOB_NOT_PARSING, "The job does not wait for a parse.")
    if not parse.text.strip():
        raise ApiError(ARTIFACT_EMPTY)
    path = parse_store.write_parse(document, parse)
    if not parse_store.lock_shared_parse(document, path):
        raise ApiError(JOB_NOT_PARSING, "The job does not wait for a parse.")
    fields = parse_store.record_parse(document, parse, path)
    fields["cost_cents"] = CollectedParse(request, VendorParse("completed", {}), document.pages or 1).settle()
    services.complete_wait(locked, code="PARSE_STORED", event={"bytes": len(parse.content), "by": "callback"}, **fields)
    return "PARSE_STORED"
