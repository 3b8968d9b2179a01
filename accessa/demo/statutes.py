"""Demo scenario: three sample statutes through the queue three times, to artifacts in a bucket and cited answers."""

import json
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet

from accessa.demo.fake_aws import FakeAws, run_fake_aws
from accessa.demo.scenarios import Demo, DemoFailed, Scenario
from documents.cli_progress import JobStatus
from embeddings.search.query_parser import TEXT
from jobs.models import UploadJob
from statutes import document_ids
from statutes.models import Consumer, Law, LawVersion
from statutes.s3 import keys

SAMPLES = settings.BASE_DIR / "samples" / "statutes"
VERSION = "2027-01"


@dataclass(frozen=True, slots=True)
class Sample:
    """A statute written for the demo. ``article`` answers the ``question``."""

    law_id: str
    key: str
    question: str
    article: str

    @property
    def file(self) -> Path:
        return SAMPLES / self.key.rpartition("/")[2]

    @property
    def document_id(self) -> UUID:
        return document_ids.document_id(self.law_id, VERSION)

    @property
    def document_ids(self) -> tuple[UUID, UUID]:
        """Return both documents that a version may have: reprocessing alternates between them."""
        return document_ids.document_ids(self.law_id, VERSION)


# fmt: off
SAMPLE_LAWS = (
    Sample("SBA_2027", "raw/harbor/2027/sample-benefits-act.xml",
           "How soon must a carrier decide a request for urgent care?", "Section 14"),
    Sample("SMDA_2027", "raw/harbor/2027/sample-disclosure-act.pdf",
           "How soon must a holder tell members of a breach?", "§ 40-2-7"),
    Sample("AGUAS_2027", "raw/valverde/2027/ley-de-ejemplo.docx",
           "¿Quién paga los gastos de conexión cuando una vivienda se divide?", "Artículo 12 Bis"),
)
# fmt: on
LAW_IDS = [law.law_id for law in SAMPLE_LAWS]


class StatuteScenario(Scenario):
    aws: FakeAws

    @contextmanager
    def environment(self) -> Iterator[None]:
        with run_fake_aws() as self.aws:
            yield

    def check_database(self) -> None:
        """Reject a database with other statutes: fake vectors must not be mixed with theirs."""
        if LawVersion.objects.exclude(law_id__in=LAW_IDS).exists():
            raise DemoFailed(
                "This database has statutes of its own. `make demo STATUTES=1` without DATABASE_URL makes another."
            )

    def run(self, demo: Demo) -> None:
        aws, console = self.aws, demo.console
        existing = [law.law_id for law in SAMPLE_LAWS if Law.objects.filter(document_id__in=law.document_ids)]
        if existing:
            console.print("The statutes of an earlier demo are reprocessed by force, because the bucket is new.\n")
        for law in SAMPLE_LAWS:
            aws.put_object(law.key, law.file.read_bytes())
        rounds = Rounds(demo, aws)
        rounds.run("sent by force" if existing else "sent", expected=SAMPLE_LAWS, forced=existing)
        first = aws.list_objects()
        if missing := {keys.manifest(law_id) for law_id in LAW_IDS} - first.keys():
            raise DemoFailed(f"There is no {', '.join(sorted(missing))}.")
        rounds.run("sent again")
        rounds.run("sent again by force", expected=SAMPLE_LAWS, forced=LAW_IDS)
        if repeated := aws.titan_ledger()["repeated"]:
            raise DemoFailed(f"{repeated} vectors were bought twice.")
        if first != aws.list_objects():
            raise DemoFailed("The artifacts of the third round differ from those of the first.")
        console.print(f"The bucket's {len(first)} objects are, byte for byte, what they were after the first round.")
        if dead := aws.count_messages(aws.dead_letter_url):
            raise DemoFailed(f"{dead} messages were given up.")
        received = Consumer.objects.latest("started_at").received
        console.print(f"The consumer has received {received} messages; none waits and none was given up.\n")
        for row in Law.objects.order_by("law_id"):
            console.print(f"{row.law_id} {row.version}, {row.language}: {row.chunk_count} passages. {row.title}")
        console.print("\nThe questions are answered by words: fake vectors do not depend on the texts.")
        for sample in SAMPLE_LAWS:
            demo.print_question(sample.question)
            hits = demo.client.search(sample.question, 1, mode=TEXT, sources=["statutes"])["laws"]
            if not hits or hits[0]["law_id"] != sample.law_id or sample.article not in hits[0]["citation"]:
                raise DemoFailed(f"{sample.article} of {sample.law_id} was not found.")
            demo.print_hit(hits[0]["citation"], hits[0]["snippet_text"])
        console.print("\nThe statutes stay in this database: the next demo buys no vector again.")


@dataclass
class Rounds:
    """The same three messages, sent several times."""

    demo: Demo
    aws: FakeAws
    sent_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def run(self, name: str, *, expected: tuple[Sample, ...] = (), forced: Collection[str] = ()) -> None:
        """Send three messages and wait for an empty queue. Raises ``DemoFailed`` if an ``expected`` job fails."""
        began, jobs, sold = time.monotonic(), _job_times(), self.aws.titan_ledger()["sold"]
        for law in SAMPLE_LAWS:
            message = {  # spec 004 §3.4
                "document_id": law.law_id,
                "s3_raw_key": law.key,
                "uploader_id": "demo",
                "ingest_timestamp": self.sent_at.isoformat(),
                "priority": "normal",
                "version": VERSION,
                "force_reprocess": law.law_id in forced,
            }
            self.aws.sqs.send_message(QueueUrl=self.aws.queue_url, MessageBody=json.dumps(message))
        states = self._follow(expected, jobs) if expected else {}
        # A message is deleted once its job has ended, by the consumer that holds it.
        queue = self.aws.queue_url
        self.demo.wait_while(lambda: self.aws.count_messages(queue), "A message is still in the queue.")
        count = len(_job_times().items() - jobs.items())
        failed = [law.law_id for law in expected if states.get(law.document_id) != "done"]
        if failed or (count and not expected):  # jobs that an interrupted demo has left may run besides
            raise DemoFailed(f"Messages {name}: {count} had a job; not done: {', '.join(failed) or 'none'}.")
        vectors = self.aws.titan_ledger()["sold"] - sold
        cost = f"{count} jobs, {vectors} vectors bought, {time.monotonic() - began:.1f} s"
        self.demo.console.print(f"Three messages {name}: {cost}", highlight=False)

    def _follow(self, laws: tuple[Sample, ...], before: dict[UUID, datetime]) -> dict[UUID, str]:
        current = {each: law.document_id for law in SAMPLE_LAWS for each in law.document_ids}

        def statuses() -> Iterator[JobStatus]:
            for job in _sample_jobs():
                if before.get(job.pk) != job.updated_at:
                    failure = (job.last_error or {}).get("code") if job.state == "deadletter" else None
                    yield JobStatus(current[job.document_id], str(job.stage), str(job.state), job.total_pct, failure)

        jobs = self.demo.follow_jobs({law.document_id: law.file.name for law in laws}, statuses)
        return {document_id: job.state for document_id, job in jobs.items()}


def _sample_jobs() -> QuerySet[UploadJob]:
    return UploadJob.objects.filter(document_id__in=[each for law in SAMPLE_LAWS for each in law.document_ids])


def _job_times() -> dict[UUID, datetime]:
    return dict(_sample_jobs().values_list("job_id", "updated_at"))
