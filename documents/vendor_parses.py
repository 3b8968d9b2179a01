"""Parses bought from a vendor: submitted once, found again after a crash, collected by the poller or by a callback.

The poller and the callback do the same; whichever is second changes nothing:

| the callback is      | its job is                       | what happens                                          |
|----------------------|----------------------------------|-------------------------------------------------------|
| the first, in time   | waiting for the vendor           | stored and advanced; a working poller loses its claim |
| repeated, or late    | past parsing, with the same text | ALREADY_PARSED, nothing                               |
| contradictory        | past parsing, with another text  | refused, CALLBACK_CONTRADICTS                         |
| early (reordered)    | not submitted yet                | refused, JOB_NOT_PARSING: sent again, or polled for   |
| for a job that ended | dead-lettered while parsing      | refused, JOB_NOT_PARSING: a retry asks the vendor     |
| without content      | waiting for the vendor           | the poller runs at once                               |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http import HTTPStatus
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import F
from django.db.models.functions import Greatest, Now

from accounts.common_error_codes import not_found
from accounts.errors import ApiError
from documents import error_codes, locks, object_deletion, parse_store, verified_original
from documents.markdown.normalization import normalize_pages
from documents.models import Document, ParseRequest
from documents.parsers import pdf_parser, registry
from documents.parsers.registry import Parser, VendorParse
from jobs import failpoints, services
from jobs.choices import ACTIVE, Stage
from jobs.claims import Claim
from jobs.models import UploadJob
from jobs.outcomes import Moved, Permanent, Retryable, Wait
from vendors import call_failures, calls, ledger
from vendors.models import Purchase

State = ParseRequest.State
VENDOR_PREFIX = "llamaparse://"
PAGE_SEPARATOR = "\n---\n"  # LlamaParse's, in the text of a whole document
# The vendor's clock may be behind ours: jobs made shortly before the request was planned are searched too.
CLOCK_SKEW_SECONDS = 300.0
GRACE_SECONDS = 120.0  # added to the deadline of a parse whose vendor was unavailable, for one more poll
CLOCK = """
    SELECT extract(epoch FROM clock_timestamp() - %s)::float8, extract(epoch FROM %s - clock_timestamp())::float8"""


def is_vendor_unavailable() -> bool:
    return calls.is_circuit_open(registry.parsing_vendor()) or calls.is_circuit_open(registry.parsing_vendor("submit"))


def submit_parse(claim: Claim, parser: Parser, plan: Mapping[str, object]) -> Moved:
    """Ensure that exactly one parse runs at the vendor, and record its id."""
    request, is_new = _plan(claim, parser, plan)
    if request.vendor_job_id is None:
        _submit(claim, request, is_new=is_new)
    limit = timedelta(seconds=pdf_parser.parse_timeout(claim.job.document.pages or 1))
    with claim.transaction():
        # One that was collected before and is needed again (its text was changed in the store) is fetched again, free.
        ParseRequest.objects.filter(pk=request.pk).update(
            state=State.SUBMITTED, vendor_job_id=request.vendor_job_id, submitted_at=Now(), deadline=Now() + limit
        )
        return claim.advance(code="PARSE_REQUESTED", event={"parser": parser.name, "round": request.round})


def _plan(claim: Claim, parser: Parser, plan: Mapping[str, object]) -> tuple[ParseRequest, bool]:
    """Record the request and its predicted price before it is sent; a failed request starts its next round."""
    with claim.transaction():
        progress = parse_store.pages_progress(claim.job.document.pages or 1, 0)
        claim.save_progress(total_pct=0, payload=dict(plan), progress=progress)
        request, is_new = ParseRequest.objects.get_or_create(
            parse_id=UUID(str(plan["parse_id"])),
            defaults={
                "document_id": claim.job.document_id,
                "user_id": claim.job.user_id,
                "job_id": claim.job.pk,
                "parser_name": parser.name,
                "parser_version": parser.version,
            },
        )
        if request.state == State.FAILED:
            # Delete what the failed round left at the vendor.
            object_deletion.schedule_deletion(request.user_id, request.document_id, vendor_path(request), seconds=0)
            request.round, request.state, request.planned_at = request.round + 1, State.PLANNED, Now()
            request.vendor_job_id = request.purchase_id = request.file_id = request.called_back_at = None
            request.save()
            is_new = True
        request.refresh_from_db()
    return request, is_new


def _submit(claim: Claim, request: ParseRequest, *, is_new: bool) -> None:
    """Find the job that an interrupted try may have bought; buy one only when there is none."""
    # The tags on the vendor's job: find_job searches for them, and the callback names the parse by them (002 §4).
    tags = {
        "parse_id": f"{request.pk}:{request.round}",
        "job_id": str(request.job_id),
        "document_id": str(request.document_id),
    }
    if request.purchase_id:  # no job is submitted before its purchase is reserved
        since = request.planned_at - timedelta(seconds=CLOCK_SKEW_SECONDS)
        with calls.guarded_call(registry.parsing_vendor(), "find"):
            request.vendor_job_id = registry.vendor_client().find_job(tags, since)
        if request.vendor_job_id:
            return
    # A wait takes its attempt back: only an interrupted try may have uploaded a file whose id it did not save.
    file_id = _upload(claim, request, is_new=is_new or claim.job.attempts <= 1)
    calls.acquire(registry.parsing_vendor("submit"))
    if not request.purchase_id:  # an unused reservation of an earlier try is reused
        _reserve(claim, request)
    document = claim.job.document
    try:
        with calls.record_call(registry.parsing_vendor(), "submit"):
            request.vendor_job_id = registry.vendor_client().submit(
                file_id, tags=tags, ocr=document.ocr, pages=document.pages or 1
            )
    except Exception as error:
        failure = calls.record_failure(registry.parsing_vendor("submit"), error)
        _void_rejected(claim, request, error, failure)
        raise failure from error
    failpoints.failpoint("job_validated:submitted")
    calls.record_success(registry.parsing_vendor("submit"))


def _upload(claim: Claim, request: ParseRequest, *, is_new: bool) -> str:
    if request.file_id:
        return request.file_id
    # A document that is deleted and uploaded again gets another name.
    key, file_id = f"{request.pk}-{request.round}-{request.job_id}", None
    if not is_new:
        with calls.guarded_call(registry.parsing_vendor(), "find"):
            file_id = registry.vendor_client().find_file(key)
    if file_id is None:
        with (
            verified_original.verified_original(claim.job.document) as path,
            calls.guarded_call(registry.parsing_vendor("submit"), "upload"),
        ):
            file_id = registry.vendor_client().upload(path, key)
    failpoints.failpoint("job_validated:uploaded")
    with claim.transaction():
        ParseRequest.objects.filter(pk=request.pk).update(file_id=file_id)
    request.file_id = file_id
    return file_id


def _reserve(claim: Claim, request: ParseRequest) -> None:
    document, pages = claim.job.document, claim.job.document.pages or 1
    with claim.transaction():
        request.purchase_id = ledger.reserve(
            user_id=document.user_id,
            document_id=document.pk,
            job_id=claim.job.pk,
            stage=claim.job.stage,
            vendor="llamaparse",
            model=request.parser_version,
            unit="pages",
            quantity=pages,
            cents=ledger.parse_price(pages),
            limited=claim.job.campaign_id is None,
        )
        ParseRequest.objects.filter(pk=request.pk).update(purchase_id=request.purchase_id)


def _void_rejected(claim: Claim, request: ParseRequest, error: Exception, failure: Exception) -> None:
    """Void the reservation when the vendor certainly made no job; drop the id of a file that the vendor deleted."""
    if call_failures.may_have_charged(error):
        return
    is_file_gone = getattr(failure, "status", None) == HTTPStatus.NOT_FOUND
    cleared: dict[str, None] = {"purchase_id": None, "file_id": None} if is_file_gone else {"purchase_id": None}
    with claim.transaction():
        if request.purchase_id:
            ledger.void(request.purchase_id)
        ParseRequest.objects.filter(pk=request.pk).update(**cleared)
    if is_file_gone:
        # The vendor deletes source files after 48 hours; a job may have waited longer for its budget.
        detail = "The parsing service no longer has the file; it is sent again."
        raise Retryable(error_codes.PARSE_FILE_GONE, detail) from error


@dataclass(frozen=True, slots=True)
class CollectedParse:
    """A completed parse at the vendor, and its cost."""

    request: ParseRequest
    parse: VendorParse
    pages: int

    def settle(self, state: State = State.COLLECTED) -> Decimal:
        """Record the state and, once, the charge, in the caller's transaction; return the cents charged now."""
        ParseRequest.objects.filter(pk=self.request.pk).update(state=state)
        purchase, credits = self.request.purchase_id, self.parse.credits
        if purchase is None or not Purchase.objects.filter(pk=purchase, state="reserved").exists():
            return Decimal(0)  # settled before: fetching again is free
        cents = ledger.parse_price(self.pages) if credits is None else ledger.credit_price(Decimal(str(credits)))
        ledger.settle(purchase, quantity=self.pages, cents=cents)
        return cents


def collect_parse(claim: Claim, parse_id: UUID) -> CollectedParse:
    """Poll the vendor 5, 10, 20, 40 … s after the submit, until the deadline, by the database's clock.

    The callback wakes the job earlier; a lost callback costs only time.
    """
    request = ParseRequest.objects.get(pk=parse_id)
    with connection.cursor() as cursor:
        cursor.execute(CLOCK, [request.submitted_at, request.deadline])
        elapsed, left = map(float, cursor.fetchone())
    if elapsed < settings.PARSE_POLL_FIRST_SECONDS and request.called_back_at is None:
        raise Wait(settings.PARSE_POLL_FIRST_SECONDS - elapsed, error_codes.WAITING_FOR_PARSER)
    pages = claim.job.document.pages or 1
    parse = _poll(request, pages)
    if parse.status in ("pending", "lost") and left > 0:  # just submitted, a job may not be found at once
        pause = min(max(elapsed, settings.PARSE_POLL_FIRST_SECONDS), settings.PARSE_POLL_MOST_SECONDS)
        raise Wait(min(pause, left), error_codes.WAITING_FOR_PARSER)
    reason = "late" if left <= 0 and parse.status in ("pending", "cancelled") else parse.status
    if parse.status == "pending":
        with calls.guarded_call(registry.parsing_vendor(), "cancel"):
            registry.vendor_client().cancel(request.vendor_job_id or "")
        parse = _poll(request, pages)  # it may have ended before it was stopped
    if parse.status == "completed":
        return CollectedParse(request, parse, pages)
    raise _fail(claim, CollectedParse(request, parse, pages), reason)


def _poll(request: ParseRequest, pages: int) -> VendorParse:
    """Return the parse's state at the vendor; while the vendor is unavailable, the deadline moves."""
    try:
        with calls.guarded_call(registry.parsing_vendor(), "look"):
            return registry.vendor_client().get_parse(request.vendor_job_id or "", pages)
    except (Wait, Retryable) as error:
        seconds = error.seconds if isinstance(error, Wait) else error.retry_after
        later = Greatest(F("deadline"), Now() + timedelta(seconds=seconds + GRACE_SECONDS))
        ParseRequest.objects.filter(pk=request.pk).update(deadline=later)
        raise


#  reason          code              detail for the tenant
GIVEN_UP = {
    "late": (error_codes.PARSE_TIMEOUT, "The parsing service did not finish in time."),
    "failed": (error_codes.PARSE_FAILED, "The parsing service could not parse this PDF."),
    "cancelled": (error_codes.PARSE_FAILED, "Somebody stopped this parse at the parsing service."),
    "lost": (error_codes.PARSE_LOST, "The parsing service no longer has the result of this parse."),
    "malformed": (error_codes.PARSE_MALFORMED, "The parsing service counts other pages than the document has."),
}


def _fail(claim: Claim, collected: CollectedParse, reason: str) -> Permanent:
    """Mark the request as failed and settle or void its purchase. Only a person's retry buys the next parse."""
    request, parse = collected.request, collected.parse
    with claim.transaction():
        ParseRequest.objects.filter(pk=request.pk).update(state=State.FAILED)
        if parse.status == "malformed" or parse.credits:
            claim.save_progress(total_pct=0, cost_cents=collected.settle(State.FAILED))
        elif parse.status in ("failed", "cancelled") and request.purchase_id:
            ledger.void(request.purchase_id)
    return Permanent(*GIVEN_UP[reason])


def is_paid(parse_id: UUID) -> bool:
    """Tell whether a parse that has not failed is reserved or bought: it costs nothing more."""
    bought = ParseRequest.objects.filter(pk=parse_id, purchase_id__isnull=False)
    return bought.exclude(state=State.FAILED).exists()


def vendor_path(request: ParseRequest) -> str:
    """Return the vendor's ids of a parse's job and file, and the tags to find them by if a submit is still running."""
    job_id, file_id = request.vendor_job_id or "", request.file_id or ""
    return f"{VENDOR_PREFIX}{job_id}/{file_id}/{request.pk}:{request.round}/{request.job_id}"


def delete_vendor_copy(path: str) -> bool:
    """Delete the job and file of a ``vendor_path`` at the vendor; return whether nothing is left or can come late."""
    vendor_job_id, file_id, parse, job_id = path.removeprefix(VENDOR_PREFIX).split("/")
    with calls.guarded_call(registry.parsing_vendor(), "forget"):
        client, since = registry.vendor_client(), datetime.now(UTC) - timedelta(days=2)
        job = vendor_job_id or client.find_job({"parse_id": parse, "job_id": job_id}, since)
        file = file_id or client.find_file(f"{parse.replace(':', '-')}-{job_id}")
        is_deleted = client.delete_parse(vendor_job_id=job, file_id=file)
    return is_deleted and bool(vendor_job_id and file_id)


def wake_poller(request: ParseRequest) -> bool:
    """Let the worker poll a parse at once, in the caller's transaction; False when it was collected before."""
    pending = ParseRequest.objects.filter(pk=request.pk, state=State.SUBMITTED)
    if not pending.exists():
        return False
    services.wake_job(request.document_id)  # first: a worker too locks the job before its parse
    return bool(pending.update(called_back_at=Now()))


def store_callback(*, job: UploadJob, content: str, parser_name: str, parser_version: str) -> str:
    """Store the markdown of a callback and advance its job, in the caller's transaction.

    Returns "PARSE_STORED" or "ALREADY_PARSED"; raises ``ApiError`` as the table above says. The recorded version is the
    requested one: ``parser_version`` may use another scheme.
    """
    locks.lock_document(job.document_id)
    locked = UploadJob.objects.select_for_update().filter(pk=job.pk).first()
    document = Document.objects.filter(pk=job.document_id).first()
    if locked is None or document is None:
        raise not_found()
    request = ParseRequest.objects.filter(pk=locked.payload.get("parse_id")).first()
    if request is None or request.parser_name != parser_name:
        raise ApiError(error_codes.JOB_NOT_PARSING)
    pages = content.split(PAGE_SEPARATOR)
    has_pages = len(pages) == document.pages
    normalized = normalize_pages(pages if has_pages else [content])
    parser = Parser(request.parser_name, request.parser_version)
    parse = parse_store.ParseResult(parser, normalized.text, normalized.page_starts if has_pages else ())
    if request.state == State.COLLECTED:
        if parse.sha256 != document.parsed_sha256:
            raise ApiError(error_codes.CALLBACK_CONTRADICTS, "Another text of this document has been delivered before.")
        return "ALREADY_PARSED"
    if locked.stage != Stage.PARSING or locked.state not in ACTIVE or request.state != State.SUBMITTED:
        raise ApiError(error_codes.JOB_NOT_PARSING)
    if not parse.text.strip():
        raise ApiError(error_codes.ARTIFACT_EMPTY)
    path = parse_store.write_parse(document, parse)
    if not parse_store.lock_shared_parse(document, path):
        raise ApiError(error_codes.JOB_NOT_PARSING)
    fields = parse_store.record_parse(document, parse, path)
    fields["cost_cents"] = CollectedParse(request, VendorParse("completed", {}), document.pages or 1).settle()
    services.complete_wait(locked, code="PARSE_STORED", event={"bytes": len(parse.content), "by": "callback"}, **fields)
    return "PARSE_STORED"
