"""A document and its newest job as a tenant sees them: where it stands, how far it is, and why it does not move."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.utils import timezone

from accounts.errors import ErrorCode
from documents.error_codes import NO_TEXT_LAYER
from documents.models import Document
from jobs import progress as standing
from jobs.models import UploadJob
from jobs.states import ACTIVE, Stage, State
from portal import user_messages

# What a tenant sees of the eleven stages.
STEPS = (
    ("Received", (Stage.QUEUED, Stage.JOB_VALIDATED)),
    ("Reading", (Stage.PARSING, Stage.PARSED)),
    ("Cutting into passages", (Stage.PARSE_VALIDATED, Stage.CHUNKING, Stage.CHUNKS_BUFFERED, Stage.CHUNKED)),
    ("Making it searchable", (Stage.EMBEDDING, Stage.EMBEDDINGS_BUFFERED, Stage.EMBEDDED)),
)
LABELS = {
    "queued": "In line",
    "starved": "In line",
    "waiting": "Waiting",
    "working": "Working",
    "retrying": "Trying again",
    "dead": "Failed",
    "done": "Searchable",
    "none": "Not begun",
}


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    state: str  # done, current, failed or ahead


@dataclass(frozen=True, slots=True)
class Shown:
    document: Document
    job: UploadJob | None
    standing: str
    sentence: str

    @property
    def id(self) -> UUID:
        return self.document.pk

    @property
    def label(self) -> str:
        return LABELS[self.standing]

    @property
    def active(self) -> bool:
        return self.job is not None and self.job.state in ACTIVE

    @property
    def pct(self) -> int:
        return 0 if self.job is None else int(standing.total_pct(self.job))

    @property
    def failure(self) -> ErrorCode | None:
        return failure(self.job) if self.job is not None and self.standing == "dead" else None

    @property
    def needs_ocr(self) -> bool:
        return self.failure == NO_TEXT_LAYER

    @property
    def steps(self) -> list[Step]:
        return [] if self.job is None else steps(self.job)

    @property
    def fingerprint(self) -> str:
        moved = self.job.updated_at.timestamp() if self.job else 0.0
        return f"{self.id.hex[:8]}-{self.standing}-{self.pct}-{moved:.3f}"


def shown(document: Document, job: UploadJob | None, *, running: int) -> Shown:
    stands = standing.tenant_display_status(job, running=running) if job else "none"
    return Shown(document, job, stands, _sentence(document, job, stands))


def steps(job: UploadJob) -> list[Step]:
    """Return the steps as they are for this job."""
    at = next(number for number, (_, stages) in enumerate(STEPS) if job.stage in stages)
    here = {State.DEADLETTER: "failed", State.DONE: "done"}.get(State(job.state), "current")
    return [Step(name, "done" if n < at else here if n == at else "ahead") for n, (name, _) in enumerate(STEPS)]


def failure(job: UploadJob) -> ErrorCode:
    return user_messages.failure((job.last_error or {}).get("code"))


def _sentence(document: Document, job: UploadJob | None, stands: str) -> str:
    if job is None:
        return "Nothing is being done with this document."
    match stands:
        case "queued":
            return "Its turn comes in a moment."
        case "starved":
            return "It follows when your other documents are done."
        case "waiting":
            return user_messages.wait_message(job.wait_reason)
        case "retrying":
            return f"Something went wrong; it is tried again {_when(job)}."
        case "dead":
            return str(failure(job).tenant_message)
        case "done":
            return _done(document)
    return _working(job)


def _when(job: UploadJob) -> str:
    left = (job.run_after - timezone.now()).total_seconds() if job.run_after else 0.0
    return user_messages.format_pause(left) if left > 1 else "in a moment"


def _done(document: Document) -> str:
    pages = f"{document.pages} page{'s' if document.pages != 1 else ''}." if document.pages else ""
    if document.failed_pages:
        missing = ", ".join(map(str, document.failed_pages))
        return f"{pages} These pages could not be read: {missing}."
    return pages


def _working(job: UploadJob) -> str:
    total, done = int(job.progress.get("embeds_total") or 0), int(job.progress.get("embeds_done") or 0)
    if job.stage == Stage.EMBEDDING and total:
        return f"{done} of {total} passages done."
    return f"{next(name for name, stages in STEPS if job.stage in stages)}."
