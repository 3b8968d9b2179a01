"""The product in a minute: real PDFs from upload to searchable passages, through the HTTP API."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, cast
from uuid import UUID

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connection, connections
from rich.console import Console

from accessa.demo import connectors as connected
from accessa.demo import fake_aws
from accessa.demo import statutes as enacted
from accessa.demo.client import ApiClient, ApiClientError
from accessa.demo.fake_vendors import print_bill, standing_in
from accessa.server.programs import Address, programs
from accessa.server.supervisor import Supervisor
from accounts import api_tokens
from accounts.models import ApiToken, User
from documents.cli_progress import JobStatus, follow_jobs

# Two tenants: each stays with the model of its first document.
EMAIL, WITH_VENDORS = "demo@accessa.example", "demo-vendors@accessa.example"
SAMPLES = settings.BASE_DIR / "samples"
START_SECONDS = 60.0
WIDTH = 120  # of what is written to no terminal: a job's line is longer than the 80 that are taken for granted
QUESTIONS = ("What does the plan cover?", "What do I pay for a visit?", "How do I appeal a decision?")


class Command(BaseCommand):
    help = "Uploads sample documents (or yours) as a demo tenant, shows them becoming searchable, asks three questions."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="*", type=Path, help="PDF files; without any, the samples of the repository")
        fake = "fake: LlamaParse, OpenAI and S3 as stand-ins on this machine, over HTTP, with the bill at the end"
        parser.add_argument("--vendors", choices=("none", "fake"), default="none", help=fake)
        recorded = (
            "fixtures: connect HubSpot, Drive, QuickBooks and Gmail by recorded answers, sync them, and search them"
        )
        parser.add_argument("--connectors", choices=("none", "fixtures"), default="none", help=recorded)
        queued = "take three sample laws from a queue to a bucket and into search, by stand-ins of AWS on this machine"
        parser.add_argument("--statutes", action="store_true", help=queued)
        parser.add_argument("--seconds", type=float, default=280.0, help="how long to wait for the documents at most")

    def handle(
        self, *, files: list[Path], vendors: str, connectors: str, statutes: bool, seconds: float, **options: Any
    ) -> None:
        missing = [str(file) for file in files if not file.is_file()]
        if missing:
            raise CommandError(f"There is no file {', '.join(missing)}.")
        console = Console(file=cast(IO[str], self.stdout), width=None if self.stdout.isatty() else WIDTH)
        chosen = files or ([] if connectors == "fixtures" or statutes else sorted(SAMPLES.glob("*.pdf")))
        address = Address("127.0.0.1", _free_port())
        take_no_messages()
        with ExitStack() as stack:
            fakes = stack.enter_context(standing_in(address)) if vendors == "fake" else None
            aws = stack.enter_context(fake_aws.standing_in()) if statutes else None
            if connectors == "fixtures":
                connected.use_recorded()
            supervisor = stack.enter_context(running(console, address, before=enacted.check if aws else lambda: None))
            visitor = stack.enter_context(visiting(address, EMAIL if fakes is None else WITH_VENDORS))
            failed = show(console, visitor, chosen, supervisor, seconds) if chosen else 0
            if connectors == "fixtures":
                _connect(console, visitor, supervisor, seconds)
            if aws:
                enacted.show(console, visitor, aws, supervisor.tick, seconds=seconds)
            if chosen and fakes is None:
                ask(console, visitor, QUESTIONS if files else _sample_questions())
            elif fakes:
                print_bill(console, visitor, fakes)
                console.print("No questions: the stand-in's vectors know nothing of what they stand for.")
                visitor.forget()  # their files are in a store that is about to end
            console.print("\nmanage.py doctor, on what has just run:", markup=False)
            unwell = examined(console, address)
        console.print("\nNothing is left running. `make serve` keeps the API and the workers up:")
        console.print("  the API lives at http://127.0.0.1:8000, its documentation at http://127.0.0.1:8000/docs")
        if statutes:
            console.print(
                "  it has a database of its own, without these laws: README's Statutes section has the way there"
            )
        if failed:
            raise CommandError(f"{failed} of {len(chosen)} documents did not end well.")
        if unwell:
            raise CommandError("The doctor has found something.")


def _connect(console: Console, visitor: ApiClient, supervisor: Supervisor, seconds: float) -> None:
    user = User.objects.get(api_tokens__name="demo", email__in=[EMAIL, WITH_VENDORS])
    try:
        connected.show(console, visitor, user.pk, supervisor.tick, seconds=seconds)
    except connected.NotConnected as error:
        raise CommandError(str(error)) from None


def take_no_messages() -> None:
    """Let nothing that is started here take from a queue that this shell is set to: what it holds is no demo's."""
    for name in ("SQS_QUEUE_URL", "SQS_PRIORITY_QUEUE_URL"):
        os.environ[name] = ""
        setattr(settings, name, "")


@contextmanager
def running(console: Console, address: Address, *, before: Callable[[], None] = lambda: None) -> Iterator[Supervisor]:
    """Run database, API and workers for the demo, and leave nothing of what was started here.

    ``before`` is called when the database is there, and nothing works on it yet.
    """
    os.environ["UPLOADS_PER_DAY"] = "100000"  # the demo may be shown more than thirty times a day
    os.environ.setdefault("LOG_LEVEL", "ERROR")
    os.environ.setdefault("GUNICORN_CMD_ARGS", "--log-level warning")
    os.environ["PUBLIC_URL"] = ""  # signed URLs must lead back to the API that is started here
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    server = getattr(connection, "server", None)
    started = server.ensure_running() if server else False
    supervisor = Supervisor(programs(address), report=console.print)
    try:
        call_command("migrate", interactive=False, verbosity=0, skip_checks=False)
        before()
        connections.close_all()
        _start(supervisor, address)
        console.print(f"PostgreSQL, the API ({address.url}) and {settings.WORKERS} workers are up.")
        console.print("The consumer of the queue is up.\n" if settings.SQS_QUEUE_URL else "")
        yield supervisor
    finally:
        supervisor.stop()
        connections.close_all()
        if server and started:
            server.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _start(supervisor: Supervisor, address: Address) -> None:
    for _ in range(int(START_SECONDS / 0.1)):
        supervisor.tick()
        if address.answers():
            return
        time.sleep(0.1)
    raise CommandError(f"The API did not answer within {START_SECONDS:.0f} s.")


@contextmanager
def visiting(address: Address, email: str) -> Iterator[ApiClient]:
    """Visit as a demo tenant, with a token for this visit and without what an earlier one left."""
    user, _ = User.objects.get_or_create(email=email, defaults={"username": email})
    visitor = ApiClient(address.url, api_tokens.create_token(user, name="demo"))
    try:
        visitor.forget()
        yield visitor
    finally:
        ApiToken.objects.filter(user=user, name="demo").delete()


def show(console: Console, visitor: ApiClient, files: list[Path], supervisor: Supervisor, seconds: float) -> int:
    """Upload the files and draw them until each has ended; return how many did not end well."""
    names: dict[UUID, str] = {}
    refused = 0
    for file in files:
        try:
            names[visitor.upload(file)] = file.name
        except ApiClientError as answered:
            refused += 1
            console.print(f"  {file.name}: {answered}", style="red", markup=False)

    def look() -> list[JobStatus]:
        supervisor.tick()
        return list(visitor.jobs())

    seen = follow_jobs(names, look, console, seconds=seconds)
    ended_well = sum(job.state == "done" for job in seen.values())
    return refused + len(names) - ended_well


def examined(console: Console, address: Address) -> bool:
    """Let doctor look at the API and the workers that are up, with their settings; return whether it finds a fault."""
    command = [sys.executable, "manage.py", "doctor"]
    doctor = subprocess.run(
        command, cwd=settings.BASE_DIR, env={**os.environ, "PUBLIC_URL": address.url}, stdout=subprocess.PIPE, text=True
    )
    console.print(doctor.stdout, markup=False, highlight=False, soft_wrap=True)
    return doctor.returncode != 0


def _sample_questions() -> list[str]:
    listed = json.loads((SAMPLES / "questions.json").read_text())
    return [entry["question"] for entry in listed[:3]]


def ask(console: Console, visitor: ApiClient, questions: Any) -> None:
    for question in questions:
        console.print(f"\n? {question}", style="bold", markup=False)
        for passage in visitor.search(question, 2):
            first, last = passage["pages"]
            pages = f"page {first}" if first == last else f"pages {first}-{last}"
            heading = " > ".join(passage["headings"]) or "no heading"
            console.print(f"  {passage['filename']}, {pages}, {heading}", style="cyan", markup=False)
            console.print(f"    {' '.join(passage['text'].split())[:240]} …", markup=False, highlight=False)
