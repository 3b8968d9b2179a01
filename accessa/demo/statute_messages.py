"""The messages of the demo of statutes: what they name, how they are sent and waited for, what each round costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.management.base import CommandError
from django.db.models import QuerySet
from rich.console import Console
from rich.table import Table

from accessa.demo.fake_aws import Aws
from documents.cli_progress import JobStatus, follow_jobs
from jobs.models import UploadJob
from statutes import ids

SAMPLES = settings.BASE_DIR / "samples" / "statutes"
VERSION = "2027-01"
COLUMNS = ("three messages", "jobs", "vectors", "tokens", "objects written", "s")


class NotEnacted(CommandError):
    """A law, or what should have come of it, is not there. Says which."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A law of our own writing. ``article`` is what answers the ``question``."""

    law_id: str
    key: str
    question: str
    article: str

    @property
    def file(self) -> Path:
        return SAMPLES / self.key.rpartition("/")[2]

    @property
    def document_id(self) -> UUID:
        return ids.document_id(self.law_id, VERSION)

    @property
    def document_ids(self) -> tuple[UUID, UUID]:
        """Done anew, a law may have another document."""
        return ids.document_ids(self.law_id, VERSION)


OURS = (
    Sample(
        "SBA_2027",
        "raw/harbor/2027/sample-benefits-act.xml",
        "How soon must a carrier decide a request for urgent care?",
        "Section 14",
    ),
    Sample(
        "SMDA_2027",
        "raw/harbor/2027/sample-disclosure-act.pdf",
        "How soon must a holder tell members of a breach?",
        "§ 40-2-7",
    ),
    Sample(
        "AGUAS_2027",
        "raw/valverde/2027/ley-de-ejemplo.docx",
        "¿Quién paga los gastos de conexión cuando una vivienda se divide?",
        "Artículo 12 Bis",
    ),
)


@dataclass
class Rounds:
    """The same messages, sent once and again. ``look`` is called meanwhile, ``until`` a time of the monotonic clock."""

    console: Console
    aws: Aws
    look: Callable[[], object]
    until: float
    table: Table = field(
        default_factory=lambda: Table(*COLUMNS, title="What each round has taken, by Titan's and S3's own books")
    )
    sent_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def run(self, name: str, *, worked_on: tuple[Sample, ...] = (), forced: Collection[str] = ()) -> None:
        """Send a message for each law, and wait until the queue is empty; ``worked_on`` must end well, each by a job.

        Raises ``NotEnacted``.
        """
        began, jobs, sold, written = time.monotonic(), _jobs(), self.aws.sold(), self.aws.written()
        for law in OURS:
            self.aws.send(self._message(law, force=law.law_id in forced))
        states = self._drawn(worked_on, jobs) if worked_on else {}
        self._wait()
        count = len(_jobs().items() - jobs.items())
        failed = [law.law_id for law in worked_on if states.get(law.document_id) != "done"]
        if failed or (count and not worked_on):  # what an interrupted demo has left may be worked on besides
            raise NotEnacted(f"Messages {name}: {count} had a job; not done: {', '.join(failed) or 'none'}.")
        bought = self.aws.sold()
        counts = (count, bought["sold"] - sold["sold"], bought["tokens"] - sold["tokens"], self.aws.written() - written)
        self.table.add_row(name, *(f"{each:,}" for each in counts), f"{time.monotonic() - began:.1f}")

    def print(self) -> None:
        self.console.print(self.table)
        if twice := self.aws.sold()["repeated"]:
            raise NotEnacted(f"{twice} vectors were bought twice.")

    def _message(self, law: Sample, *, force: bool) -> dict[str, Any]:
        """Return the message of spec 004 §3.4."""
        return {
            "document_id": law.law_id,
            "s3_raw_key": law.key,
            "uploader_id": "demo",
            "ingest_timestamp": self.sent_at.isoformat(),
            "priority": "normal",
            "version": VERSION,
            "force_reprocess": force,
        }

    def _drawn(self, laws: tuple[Sample, ...], before: dict[UUID, datetime]) -> dict[UUID, str]:
        """Draw the laws' jobs until each has ended; return their states, under the documents' ids."""

        def seen() -> list[JobStatus]:
            self.look()
            return list(_seen(before))

        names = {law.document_id: law.file.name for law in laws}
        found = follow_jobs(names, seen, self.console, seconds=max(0.0, self.until - time.monotonic()))
        return {document_id: job.state for document_id, job in found.items()}

    def _wait(self) -> None:
        """A message is deleted once its job has ended, by the consumer that holds it."""
        while self.aws.waiting():
            self.look()
            if time.monotonic() > self.until:
                raise NotEnacted("A message is still in the queue.")
            time.sleep(0.1)


def _jobs() -> dict[UUID, datetime]:
    """Return the jobs of our laws, each with when it has changed."""
    return dict(_of_ours().values_list("job_id", "updated_at"))


def _of_ours() -> QuerySet[UploadJob]:
    return UploadJob.objects.filter(document_id__in=[each for law in OURS for each in law.document_ids])


def _seen(before: dict[UUID, datetime]) -> Iterator[JobStatus]:
    """Yield what has become of each law, under its document's id, by the jobs that have changed since ``before``."""
    names = {each: law.document_id for law in OURS for each in law.document_ids}
    for job in _of_ours():
        if before.get(job.pk) != job.updated_at:
            failure = (job.last_error or {}).get("code") if job.state == "deadletter" else None
            yield JobStatus(names[job.document_id], str(job.stage), str(job.state), job.total_pct, failure)
