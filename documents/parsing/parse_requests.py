"""A parse that is bought: asked for once, found again after a crash, collected by whoever learns of it first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from http import HTTPStatus
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import F
from django.db.models.functions import Greatest, Now

from documents import parsers
from documents.models import Document, ParseRequest
from documents.parsers import registry
from documents.parsers.registry import Parser, VendorParse
from documents.parsing import vendor_files
from documents.storage import object_deletions, original_file
from jobs import failpoints
from jobs.claims import Claim
from jobs.outcomes import Moved, Permanent, Postponed, Retryable, Wait
from vendors import call_metrics, guard, ledger
from vendors.models import Purchase

State = ParseRequest.State
# A clock at the vendor's may be behind ours: jobs made a little before we planned them are looked at too.
CLOCKS_DIFFER_SECONDS = 300.0
GRACE_SECONDS = 120.0  # that a parse has after its vendor was away, to be looked at once more


def is_vendor_unavailable() -> bool:
    """Tell whether a parse could not be asked for at present."""
    return guard.is_circuit_open(registry.parsing_vendor()) or guard.is_circuit_open(registry.parsing_vendor("submit"))


def submit_parse(claim: Claim, parser: Parser, plan: Mapping[str, object]) -> Moved:
    """job_validated: see to it that exactly one parse is under way at the vendor's, and remember which."""
    document = claim.job.document
    asked, is_new = _planned(claim, parser, plan)
    if asked.vendor_job_id is None:
        _submit(claim, asked, document, is_new=is_new)
    with claim.transaction():
        # One that was collected before and is wanted again (its text was changed in the store) is fetched again, free.
        ParseRequest.objects.filter(pk=asked.pk).update(
            state=State.SUBMITTED, vendor_job_id=asked.vendor_job_id, **_times(document)
        )
        event = {"parser": parser.name, "round": asked.round}
        return claim.advance(code="PARSE_REQUESTED", event=event)


def _planned(claim: Claim, parser: Parser, plan: Mapping[str, object]) -> tuple[ParseRequest, bool]:
    """Write down that a parse will be asked for and its price, before it is; a failed one begins its next round."""
    parse_id = UUID(str(plan["parse_id"]))
    with claim.transaction():
        claim.save_progress(total_pct=0, payload=dict(plan))
        asked, is_new = ParseRequest.objects.get_or_create(
            parse_id=parse_id,
            defaults={
                "document_id": claim.job.document_id,
                "user_id": claim.job.user_id,
                "job_id": claim.job.pk,
                "parser_name": parser.name,
                "parser_version": parser.version,
            },
        )
        if asked.state == State.FAILED:
            # What the failed round left at the vendor's.
            object_deletions.schedule_deletion(asked.document_id, vendor_files.vendor_path(asked), seconds=0)
            asked.round, asked.state, asked.planned_at = asked.round + 1, State.PLANNED, Now()
            asked.vendor_job_id = asked.purchase_id = asked.file_id = asked.called_back_at = None
            asked.save()
            is_new = True
        asked.refresh_from_db()
    return asked, is_new


def _submit(claim: Claim, asked: ParseRequest, document: Document, *, is_new: bool) -> None:
    """Find the job that a try which broke off may have bought; buy one only when there is none."""
    tags = _tags(asked)
    if asked.purchase_id:  # no job is submitted that was not reserved before
        with guard.guarded_call(registry.parsing_vendor(), "find"):
            asked.vendor_job_id = registry.vendor_client().find_job(tags, _since(asked))
        if asked.vendor_job_id:
            return
    # A wait takes its attempt back: only a try that broke off may have uploaded what it did not write down.
    file_id = _uploaded(claim, asked, document, is_new=is_new or claim.job.attempts <= 1)
    guard.acquire(registry.parsing_vendor("submit"))
    _reserve(claim, asked, document)
    try:
        with call_metrics.record_call(registry.parsing_vendor(), "submit"):
            asked.vendor_job_id = registry.vendor_client().submit(
                file_id, tags=tags, ocr=document.ocr, pages=document.pages or 1
            )
    except Exception as error:
        told = guard.record_failure(registry.parsing_vendor("submit"), error)
        _refused(claim, asked, error, told)
        raise told from error
    failpoints.failpoint("job_validated:submitted")
    guard.record_success(registry.parsing_vendor("submit"))


def _tags(asked: ParseRequest) -> dict[str, str]:
    """Return what is written on the vendor's job: by this it is found again, and 002 §4's callback names it."""
    return {"parse_id": f"{asked.pk}:{asked.round}", "job_id": str(asked.job_id), "document_id": str(asked.document_id)}


def _uploaded(claim: Claim, asked: ParseRequest, document: Document, *, is_new: bool) -> str:
    """Return the vendor's id of the document's file; uploading costs nothing, but once is enough."""
    if asked.file_id:
        return asked.file_id
    key = vendor_files.vendor_file_key(asked)
    found = None
    if not is_new:
        with guard.guarded_call(registry.parsing_vendor(), "find"):
            found = registry.vendor_client().find_file(key)
    if found is None:
        with (
            original_file.verified_original(document) as path,
            guard.guarded_call(registry.parsing_vendor("submit"), "upload"),
        ):
            found = registry.vendor_client().upload(path, key)
    failpoints.failpoint("job_validated:uploaded")
    with claim.transaction():
        ParseRequest.objects.filter(pk=asked.pk).update(file_id=found)
    asked.file_id = found
    return found


def _reserve(claim: Claim, asked: ParseRequest, document: Document) -> None:
    """Write the purchase before it is made. What an earlier try reserved in vain stands for this one."""
    if asked.purchase_id:
        return
    pages = document.pages or 1
    with claim.transaction():
        asked.purchase_id = ledger.reserve(
            user_id=document.user_id,
            document_id=document.pk,
            job_id=claim.job.pk,
            stage=claim.job.stage,
            vendor="llamaparse",
            model=asked.parser_version,
            unit="pages",
            quantity=pages,
            cents=ledger.parse_price(pages),
        )
        ParseRequest.objects.filter(pk=asked.pk).update(purchase_id=asked.purchase_id)


def _refused(claim: Claim, asked: ParseRequest, error: Exception, told: Exception) -> None:
    """Take back what was reserved when the vendor surely made no job; forget a file that it no longer has."""
    if guard.may_have_charged(error):
        return
    is_file_gone = getattr(told, "status", None) == HTTPStatus.NOT_FOUND
    forgotten: dict[str, None] = {"purchase_id": None, "file_id": None} if is_file_gone else {"purchase_id": None}
    with claim.transaction():
        if asked.purchase_id:
            ledger.void(asked.purchase_id)
        ParseRequest.objects.filter(pk=asked.pk).update(**forgotten)
    if is_file_gone:
        # Source files are deleted after 48 hours; a job may have waited longer for its budget.
        raise Retryable("PARSE_FILE_GONE", "The parsing service no longer has the file; it is sent again.") from error


def _since(asked: ParseRequest) -> datetime:
    return asked.planned_at - timedelta(seconds=CLOCKS_DIFFER_SECONDS)


def _times(document: Document) -> dict[str, object]:
    limit = timedelta(seconds=parsers.parse_timeout(document.pages or 1))
    return {"submitted_at": Now(), "deadline": Now() + limit}


@dataclass(frozen=True, slots=True)
class CollectedParse:
    """What a finished parse brought, and what it cost."""

    asked: ParseRequest
    look: VendorParse
    pages: int

    @property
    def cents(self) -> Decimal:
        if self.look.credits is None:
            return ledger.parse_price(self.pages)
        return ledger.credit_price(Decimal(str(self.look.credits)))

    def settle(self) -> Decimal:
        """Write down that the parse is here and what was charged, in the caller's transaction; return the cents."""
        ParseRequest.objects.filter(pk=self.asked.pk).update(state=State.COLLECTED)
        return _settled(self.asked, self.cents, self.pages)


def _settled(asked: ParseRequest, cents: Decimal, pages: int) -> Decimal:
    """Settle the purchase of a parse, once; return what it adds to the job's cost."""
    if asked.purchase_id is None or not Purchase.objects.filter(pk=asked.purchase_id, state="reserved").exists():
        return Decimal(0)  # settled before: what is fetched again costs nothing
    ledger.settle(asked.purchase_id, quantity=pages, cents=cents)
    return cents


def collect_parse(claim: Claim, parse_id: UUID) -> CollectedParse | Wait:
    """parsing: look whether the vendor is done. Looks at 5, 10, 20, 40 … s after the submit, until the deadline.

    The callback wakes the job earlier; lost, it costs time and nothing else.
    """
    asked = ParseRequest.objects.get(pk=parse_id)
    elapsed, left = _clock(asked)
    if elapsed < settings.PARSE_POLL_FIRST_SECONDS and asked.called_back_at is None:
        return Wait(settings.PARSE_POLL_FIRST_SECONDS - elapsed, "WAITING_FOR_PARSER")
    pages = claim.job.document.pages or 1
    look = _looked(asked, pages)
    if look.status in ("pending", "lost") and left > 0:  # just submitted, a job may not be found at once
        pause = min(max(elapsed, settings.PARSE_POLL_FIRST_SECONDS), settings.PARSE_POLL_MOST_SECONDS)
        return Wait(min(pause, left), "WAITING_FOR_PARSER")
    how = "late" if left <= 0 and look.status in ("pending", "cancelled") else look.status
    if look.status == "pending":
        look = _cancelled(asked, pages)
    if look.status == "completed":
        return CollectedParse(asked, look, pages)
    raise _given_up(claim, asked, look, how)


def _looked(asked: ParseRequest, pages: int) -> VendorParse:
    """Look how far the parse is. While the vendor cannot be asked nobody is late: the deadline moves."""
    try:
        with guard.guarded_call(registry.parsing_vendor(), "look"):
            return registry.vendor_client().get_parse(asked.vendor_job_id or "", pages)
    except (Postponed, Retryable) as away:
        seconds = away.wait.seconds if isinstance(away, Postponed) else away.retry_after
        later = Greatest(F("deadline"), Now() + timedelta(seconds=seconds + GRACE_SECONDS))
        ParseRequest.objects.filter(pk=asked.pk).update(deadline=later)
        raise


def _cancelled(asked: ParseRequest, pages: int) -> VendorParse:
    """Stop a parse that is late, and look once more: it may have ended before it was stopped."""
    with guard.guarded_call(registry.parsing_vendor(), "cancel"):
        registry.vendor_client().cancel(asked.vendor_job_id or "")
    return _looked(asked, pages)


#  how it ended    code              what the tenant reads
GIVEN_UP = {
    "late": ("PARSE_TIMEOUT", "The parsing service did not finish in time."),
    "failed": ("PARSE_FAILED", "The parsing service could not parse this PDF."),
    "cancelled": ("PARSE_FAILED", "Somebody stopped this parse at the parsing service."),
    "lost": ("PARSE_LOST", "The parsing service no longer has the result of this parse."),
    "malformed": ("PARSE_MALFORMED", "The parsing service counts other pages than the document has."),
}


def _given_up(claim: Claim, asked: ParseRequest, look: VendorParse, how: str) -> Permanent:
    """End a parse that will not come. Only a person's retry buys the next one."""
    with claim.transaction():
        ParseRequest.objects.filter(pk=asked.pk).update(state=State.FAILED)
        if look.status == "malformed" or look.credits:
            cents = CollectedParse(asked, look, claim.job.document.pages or 1).cents
            claim.save_progress(total_pct=0, cost_cents=_settled(asked, cents, claim.job.document.pages or 1))
        elif look.status in ("failed", "cancelled") and asked.purchase_id:
            ledger.void(asked.purchase_id)
    return Permanent(*GIVEN_UP[how])


CLOCK = """
    SELECT extract(epoch FROM clock_timestamp() - %s)::float8, extract(epoch FROM %s - clock_timestamp())::float8"""


def _clock(asked: ParseRequest) -> tuple[float, float]:
    """Return the seconds since the submit and those left until the deadline, by the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute(CLOCK, [asked.submitted_at, asked.deadline])
        elapsed, left = cursor.fetchone()
    return float(elapsed), float(left)


def is_paid(parse_id: UUID) -> bool:
    """Tell whether a parse that has not failed is reserved or bought: it costs nothing more."""
    asked = ParseRequest.objects.filter(pk=parse_id, purchase_id__isnull=False)
    return asked.exclude(state=State.FAILED).exists()
