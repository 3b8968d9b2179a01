"""Status of a document for its tenant: step, progress, and why it does not move."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.utils import timezone
from django.utils.translation import gettext as translate
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from accounts.common_error_codes import not_found
from accounts.errors import ErrorCode
from accounts.rls import as_tenant
from documents.error_codes import NO_TEXT_LAYER, PARSE_TIMEOUT, PARSER_CRASHED, PARSER_OUT_OF_MEMORY
from documents.models import Document
from jobs import display_status, services
from jobs.choices import ACTIVE, Stage, State
from jobs.models import UploadJob
from portal import user_messages

# The eleven stages as tenants see them.
STEPS = (
    (_("Received"), (Stage.QUEUED, Stage.JOB_VALIDATED)),
    (_("Reading"), (Stage.PARSING, Stage.PARSED)),
    (_("Splitting into passages"), (Stage.PARSE_VALIDATED, Stage.CHUNKING, Stage.CHUNKS_BUFFERED, Stage.CHUNKED)),
    (_("Making it searchable"), (Stage.EMBEDDING, Stage.EMBEDDINGS_BUFFERED, Stage.EMBEDDED)),
)
LABELS = {
    "queued": _("In line"),
    "starved": _("In line"),
    "waiting": _("Waiting"),
    "working": _("Working"),
    "retrying": _("Trying again"),
    "dead": _("Failed"),
    "done": _("Searchable"),
    "none": _("Not begun"),
}


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    state: str  # done, current, failed or ahead


@dataclass(frozen=True, slots=True)
class DocumentStatus:
    document: Document
    job: UploadJob | None
    standing: str  # the job's display status, or "none"

    @property
    def id(self) -> UUID:
        return self.document.pk

    @property
    def label(self) -> str:
        return str(LABELS[self.standing])

    @property
    def active(self) -> bool:
        return self.job is not None and self.job.state in ACTIVE

    @property
    def pct(self) -> int:
        return 0 if self.job is None else int(round(self.job.total_pct, 1))

    @property
    def failure(self) -> ErrorCode | None:
        return _failure(self.job) if self.job is not None and self.standing == "dead" else None

    @property
    def needs_ocr(self) -> bool:
        return self.failure == NO_TEXT_LAYER

    @property
    def has_thumbnail(self) -> bool:
        # What the parser's limits stop, the renderer's would stop at each showing of the list.
        return bool(self.document.pages) and self.failure not in (PARSER_OUT_OF_MEMORY, PARSER_CRASHED, PARSE_TIMEOUT)

    @property
    def steps(self) -> list[Step]:
        if self.job is None:
            return []
        current = next(number for number, (_, stages) in enumerate(STEPS) if self.job.stage in stages)
        state = {State.DEADLETTER: "failed", State.DONE: "done"}.get(State(self.job.state), "current")
        return [
            Step(str(name), "done" if number < current else state if number == current else "ahead")
            for number, (name, _) in enumerate(STEPS)
        ]

    @property
    def sentence(self) -> str:
        if self.job is None:
            return translate("This document has no job.")
        match self.standing:
            case "queued":
                return translate("Its turn comes in a moment.")
            case "starved":
                return translate("It follows when your other documents are done.")
            case "waiting":
                return user_messages.wait_message(self.job.wait_reason)
            case "retrying":
                seconds = (self.job.run_after - timezone.now()).total_seconds() if self.job.run_after else 0.0
                when = user_messages.format_pause(seconds) if seconds > 1 else translate("in a moment")
                return translate("Something went wrong; it is tried again %s.") % when
            case "dead":
                return user_messages.failure_message(self.job)
            case "done":
                return _page_count(self.document)
        total, done = (int(self.job.progress.get(f"embeds_{kind}") or 0) for kind in ("total", "done"))
        if self.job.stage == Stage.EMBEDDING and total:
            return translate("%(done)s of %(total)s passages done.") % {"done": done, "total": total}
        return f"{next(name for name, stages in STEPS if self.job.stage in stages)}."

    @property
    def fingerprint(self) -> str:
        updated_at = self.job.updated_at.timestamp() if self.job else 0.0
        return f"{self.id.hex[:8]}-{self.standing}-{self.pct}-{updated_at:.3f}"


def document_status(document: Document, job: UploadJob | None, *, running: int) -> DocumentStatus:
    """Return the status of a document and its newest job; ``running`` is the number of the tenant's running jobs."""
    return DocumentStatus(document, job, display_status.tenant_display_status(job, running=running) if job else "none")


def _failure(job: UploadJob) -> ErrorCode:
    return user_messages.failure((job.last_error or {}).get("code"))


def _page_count(document: Document) -> str:
    count = document.pages
    sentences = [ngettext("%s page.", "%s pages.", count) % count] if count else []
    if document.failed_pages:
        numbers = ", ".join(map(str, document.failed_pages))
        sentences.append(translate("These pages could not be read: %s.") % numbers)
    if document.doubtful_pages:
        numbers = ", ".join(map(str, document.doubtful_pages))
        sentences.append(translate("The text of these pages may be in the wrong order or incomplete: %s.") % numbers)
    return " ".join(sentences)


def get_document(user_id: UUID, document_id: UUID) -> DocumentStatus:
    """Return a document of the tenant. Raises ``NOT_FOUND`` for another tenant's and for one that does not exist."""
    with as_tenant(user_id):
        document = Document.objects.filter(user_id=user_id, pk=document_id).first()
        if document is None:
            raise not_found()
        job = _newest_jobs(user_id, [document]).get(document_id)
        return document_status(document, job, running=display_status.count_running(user_id))


def _newest_jobs(user_id: UUID, documents: Sequence[Document]) -> dict[UUID, UploadJob]:
    own = services.tenant_jobs().filter(user_id=user_id, document_id__in=[document.pk for document in documents])
    newest = own.order_by("document_id", "-created_at", "-job_id").distinct("document_id")
    return {job.document_id: job for job in newest}
