"""Demo scenarios: PDFs from upload to search, the same with fake vendors, connected systems by recorded responses."""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock
from uuid import UUID

from django.core.management.base import CommandError
from django.test import override_settings
from rich.console import Console

from accessa.demo.api_client import ApiClient, ApiClientError
from accessa.demo.document_questions import document_questions
from accessa.demo.fakes_process import Fakes, fetch_counters, run_fakes, vendor_variables
from accessa.server.address import Address
from accounts.errors import Context, error_codes
from accounts.models import User
from documents.cli_progress import JobStatus, follow_jobs
from documents.error_codes import UPLOAD_INVALID
from integrations import disconnect
from integrations.models import ConnectedSource, IngestionJob, Provider
from integrations.oauth import authorization_flow
from integrations.sync import lifecycle

CONNECTOR_QUESTIONS = (("Which company roasts coffee?", "hubspot"), ("Who writes about the renewal?", "gmail"))
QUESTIONED = 3  # documents that are asked about


class DemoFailed(CommandError):
    """The demo did not end as promised. The message says where."""


@dataclass
class Demo:
    """``tick`` keeps the programs running while a scenario waits; ``deadline`` is a time of the monotonic clock."""

    console: Console
    client: ApiClient
    tick: Callable[[], object]
    deadline: float
    failures: list[str] = field(default_factory=list)  # reported when all scenarios have run

    def wait_while(self, condition: Callable[[], object], failure: str) -> None:
        while condition():
            self.tick()
            if time.monotonic() > self.deadline:
                raise DemoFailed(failure)
            time.sleep(0.1)

    def follow_jobs(self, names: dict[UUID, str], statuses: Callable[[], Iterable[JobStatus]]) -> dict[UUID, JobStatus]:

        def poll() -> Iterable[JobStatus]:
            self.tick()
            return statuses()

        return follow_jobs(names, poll, self.console, seconds=max(0.0, self.deadline - time.monotonic()))

    def print_question(self, question: str) -> None:
        self.console.print(f"\n? {question}", style="bold", markup=False)

    def print_hit(self, citation: str, text: str) -> None:
        plain = " ".join(text.split())
        self.console.print(f"  {citation}", style="cyan", markup=False)
        self.console.print(f"    {plain[:240]}{' …' * (len(plain) > 240)}", markup=False, highlight=False)


class Scenario:
    """The methods are called in this order."""

    def environment(self) -> AbstractContextManager[None]:
        """Return the context in which database, API and workers run: fakes and settings."""
        return nullcontext()

    def check_database(self) -> None:
        """Raise ``DemoFailed`` where the database is not fit for the scenario."""

    def run(self, demo: Demo) -> None:
        raise NotImplementedError


class DocumentScenario(Scenario):
    """Upload files, then ask ``questions``; None: about the headings and table rows of the documents."""

    def __init__(self, files: list[Path], questions: list[str] | None) -> None:
        self.files = files
        self.questions = questions

    def run(self, demo: Demo) -> None:
        names: dict[UUID, str] = {}
        for file in self.files:
            try:
                names[demo.client.upload(file)] = file.name
            except ApiClientError as error:
                demo.console.print(f"  {file.name}: {error}", style="red", markup=False)
                if error.code not in UPLOAD_INVALID:
                    demo.failures.append(f"{file.name} was not accepted: {error.code}.")
        jobs = demo.follow_jobs(names, demo.client.jobs) if names else {}
        for job_id, name in names.items():
            _print_failure(demo, name, jobs.get(job_id))
        questions = _own_questions(demo.client, jobs.values()) if self.questions is None else self.questions
        for question in questions:
            demo.print_question(question)
            answer = demo.client.answer(question)
            if not answer["answered"]:
                demo.console.print(f"  {answer['text']}", markup=False)
            for sentence in answer["sentences"]:
                (cited,) = sentence["citations"]
                heading = " > ".join(cited["headings"]) or "no heading"
                demo.print_hit(f"{cited['title']}, page {cited['page']}, {heading}", sentence["text"])


def _print_failure(demo: Demo, name: str, job: JobStatus | None) -> None:
    """Print why a file was refused, and the way out. Only what another try might change fails the demo."""
    if job is not None and job.is_done:
        return
    error = error_codes(Context.FAILURE).get(job.failure or "") if job is not None else None
    if error is not None:
        demo.console.print(f"  {name}: {error.tenant_message}", style="yellow", markup=False)
    if error is None or error.retryable:
        demo.failures.append(f"{name} did not end well.")


def _own_questions(client: ApiClient, jobs: Iterable[JobStatus]) -> list[str]:
    documents = {UUID(row["job_id"]): row["document_id"] for row in client.rows("/jobs")}
    done = [documents[job.job_id] for job in jobs if job.is_done]
    texts = map(client.parsed_text, done[:QUESTIONED])
    return [question for text in texts for question in document_questions(text)]


class VendorScenario(DocumentScenario):
    def __init__(self, files: list[Path], address: Address) -> None:
        super().__init__(files, questions=[])
        self.address = address
        self.fakes: Fakes = {}

    @contextmanager
    def environment(self) -> Iterator[None]:
        with (
            run_fakes("llamaparse", "openai", "s3", options=("--s3-strict",)) as self.fakes,
            mock.patch.dict(os.environ, vendor_variables(self.fakes, self.address)),
        ):
            yield

    def run(self, demo: Demo) -> None:
        super().run(demo)
        demo.console.print("The bill:", *_bill(demo.client), sep="\n  ", markup=False, highlight=False)
        parses, vectors = fetch_counters(self.fakes["llamaparse"]), fetch_counters(self.fakes["openai"])
        sold, calls = parses["ledger"], parses["callbacks"]
        demo.console.print(f"LlamaParse sold {sold['sold']} parses, {sold['repeated']} of them twice;")
        demo.console.print(f"  {calls['accepted']} of its {calls['attempts']} signed callbacks were accepted.")
        sold = vectors["ledger"]
        tokens = sold.get("tokens", 0)  # none were sold
        demo.console.print(f"OpenAI sold {sold['sold']} vectors ({tokens} tokens), {sold['repeated']} of them twice.")
        demo.console.print("No questions: fake vectors do not depend on the texts.")
        demo.client.delete_documents()  # the fake store is about to end


def _bill(client: ApiClient) -> Iterator[str]:
    """Yield a line for each document: the pages and tokens bought, their price, and the predicted price."""
    for document in client.rows("/documents"):
        bought = {"pages": 0, "tokens": 0}
        cents = 0.0
        for purchase in client.rows(f"/documents/{document['document_id']}/purchases"):
            bought["pages" if purchase["unit"] == "pages" else "tokens"] += purchase["quantity"]
            cents += purchase["cents"]
        predicted = client.call("GET", f"/jobs/{document['document_id']}")["predicted_cents"]
        counts = f"{bought['pages']:,} pages, {bought['tokens']:,} tokens"
        yield f"{document['filename']}: {counts}, {cents:,.4f} cents (predicted {predicted:,.4f})"


class ConnectorScenario(Scenario):
    """Four connected systems by recorded responses, synced twice and searched."""

    def __init__(self, email: str) -> None:
        self.email = email

    @contextmanager
    def environment(self) -> Iterator[None]:
        logging.disable(logging.INFO)
        with (
            mock.patch.dict(os.environ, INTEGRATIONS_USE_FIXTURES="true"),
            override_settings(INTEGRATIONS_USE_FIXTURES=True),
        ):
            yield

    def run(self, demo: Demo) -> None:
        user_id = User.objects.get(email=self.email).pk
        unfinished = IngestionJob.objects.filter(user_id=user_id, finished_at=None)
        for source in ConnectedSource.objects.filter(user_id=user_id):  # of an earlier demo
            disconnect.disconnect_source(source, by=None, reason="The demo starts again.")
        demo.wait_while(unfinished.exists, "A sync did not end in time.")
        sources = [
            authorization_flow.connect_fixtures(user_id=user_id, provider=provider) for provider in Provider.values
        ]
        for sync in ("first", "second"):
            for source in sources if sync == "second" else ():
                lifecycle.start_sync(source, IngestionJob.Kind.FULL, by="demo")
            demo.wait_while(unfinished.exists, "A sync did not end in time.")
            for source in sources:
                _check_sync(demo, source, sync)
        for question, system in CONNECTOR_QUESTIONS:
            demo.print_question(f"{question}  (in {system})")
            records = demo.client.search(question, 2, sources=[system])["records"]
            if not records:
                raise DemoFailed(f"Nothing was found in {system}.")
            for record in records:
                demo.print_hit(f"{record['document_type']}: {record['title']}", record["text"])


def _check_sync(demo: Demo, source: ConnectedSource, sync: str) -> None:
    job = source.jobs.exclude(kind=IngestionJob.Kind.FORGET).latest("created_at")
    if job.status != IngestionJob.Status.COMPLETED:
        raise DemoFailed(f"A sync ended as {job.status}: {job.error_message}")
    if job.items_failed or not job.items_seen:
        raise DemoFailed(f"A sync of {job.items_seen} records has failed with {job.items_failed} of them.")
    if sync == "second" and job.items_embedded:
        raise DemoFailed(f"{job.items_embedded} records were embedded again though nothing had changed.")
    counts = f"{job.items_seen} records, {job.items_written} new, {job.items_embedded} embedded"
    demo.console.print(f"{Provider(source.provider).label}, {sync} sync: {counts}", highlight=False)
