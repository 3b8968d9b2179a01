"""manage.py demo: run database, API and workers, and show scenarios through the HTTP API."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, cast

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from rich.console import Console

from accessa.demo.api_client import ApiClient
from accessa.demo.legacy import LegacyScenario
from accessa.demo.scenarios import ConnectorScenario, Demo, DocumentScenario, Scenario, VendorScenario
from accessa.demo.statutes import StatuteScenario
from accessa.server import search_engine
from accessa.server.address import Address
from accessa.server.database import migrated_database
from accessa.server.programs import programs
from accessa.server.supervisor import Supervisor
from accounts import api_tokens
from accounts.models import ApiToken, User

# Two tenants: each stays with the model of its first document.
EMAIL, WITH_VENDORS = "demo@accessa.example", "demo-vendors@accessa.example"
SAMPLES = settings.BASE_DIR / "samples"
START_SECONDS = 60.0
WIDTH = 120  # of output to no terminal: a job's line is longer than the default of 80


class Command(BaseCommand):
    help = "Uploads sample documents (or yours) as a demo tenant, shows their progress, asks questions about them."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("files", nargs="*", type=Path, help="PDF files; without any, the samples of the repository")
        vendors = "fake: LlamaParse, OpenAI and S3 as fakes on this machine, over HTTP, with the bill at the end"
        parser.add_argument("--vendors", choices=("none", "fake"), default="none", help=vendors)
        connectors = (
            "fixtures: connect HubSpot, Drive, QuickBooks and Gmail by recorded responses, sync them, and search them"
        )
        parser.add_argument("--connectors", choices=("none", "fixtures"), default="none", help=connectors)
        statutes = "take three sample statutes from a queue to a bucket and into search, by a fake AWS on this machine"
        parser.add_argument("--statutes", action="store_true", help=statutes)
        legacy = "import a made old system: inventory, dry run, adoption, validation, cut-over, rollback"
        parser.add_argument("--legacy", action="store_true", help=legacy)
        parser.add_argument("--seconds", type=float, default=280.0, help="the longest to wait for a scenario")

    def handle(self, *, files: list[Path], seconds: float, **options: Any) -> None:
        missing = [str(file) for file in files if not file.is_file()]
        if missing:
            raise CommandError(f"There is no file {', '.join(missing)}.")
        console = Console(file=cast(IO[str], self.stdout), width=None if self.stdout.isatty() else WIDTH)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            address = Address("127.0.0.1", probe.getsockname()[1])
        email = WITH_VENDORS if options["vendors"] == "fake" else EMAIL
        scenarios = _scenarios(files, address, email, **options)
        clear_queue_urls()
        with ExitStack() as stack:
            for scenario in scenarios:
                stack.enter_context(scenario.environment())
            supervisor = stack.enter_context(run_programs(console, address, scenarios))
            client = stack.enter_context(demo_client(address, email))
            demo = Demo(console, client, supervisor.tick, deadline=0.0)
            for scenario in scenarios:
                demo.deadline = time.monotonic() + seconds
                scenario.run(demo)
            console.print("\nmanage.py doctor, on what has just run:", markup=False)
            environment = {**os.environ, "PUBLIC_URL": address.url}
            command = [sys.executable, "manage.py", "doctor"]
            doctor = subprocess.run(command, cwd=settings.BASE_DIR, env=environment, stdout=subprocess.PIPE, text=True)
            console.print(doctor.stdout, markup=False, highlight=False, soft_wrap=True)
            if doctor.returncode:
                demo.failures.append("The doctor has found something.")
        console.print("\nNothing is left running. `make serve` keeps the API and the workers up:")
        console.print("  the API lives at http://127.0.0.1:8000, its documentation at http://127.0.0.1:8000/docs")
        if options["statutes"]:
            console.print("  it has another database, without these statutes: docs/operations/statutes.md shows how")
        if demo.failures:
            raise CommandError(demo.failures[0])


def _scenarios(
    files: list[Path],
    address: Address,
    email: str,
    *,
    vendors: str,
    connectors: str,
    statutes: bool,
    legacy: bool,
    **_: Any,
) -> list[Scenario]:
    samples = [] if connectors == "fixtures" or statutes or legacy else sorted(SAMPLES.glob("*.pdf"))
    scenarios: list[Scenario] = []
    if vendors == "fake":
        scenarios.append(VendorScenario(files or samples, address))
    elif files or samples:
        of_samples = [row["question"] for row in json.loads((SAMPLES / "questions.json").read_text())[:3]]
        scenarios.append(DocumentScenario(files or samples, None if files else of_samples))
    if connectors == "fixtures":
        scenarios.append(ConnectorScenario(email))
    if statutes:
        scenarios.append(StatuteScenario())
    if legacy:
        scenarios.append(LegacyScenario())
    return scenarios


def clear_queue_urls() -> None:
    """Unset the queues of this shell: their messages are no demo's."""
    for name in ("SQS_QUEUE_URL", "SQS_PRIORITY_QUEUE_URL"):
        os.environ[name] = ""
        setattr(settings, name, "")


@contextmanager
def run_programs(console: Console, address: Address, scenarios: list[Scenario]) -> Iterator[Supervisor]:
    os.environ["UPLOADS_PER_DAY"] = "100000"  # the demo may run more than thirty times a day
    os.environ.setdefault("LOG_LEVEL", "ERROR")
    os.environ.setdefault("GUNICORN_CMD_ARGS", "--log-level warning")
    os.environ["PUBLIC_URL"] = ""  # signed URLs must lead back to the API that is started here
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    supervisor = Supervisor(programs(address), report=console.print)
    with migrated_database():
        for scenario in scenarios:
            scenario.check_database()
        connections.close_all()
        try:
            until = time.monotonic() + START_SECONDS
            while not address.answers() or not search_engine.is_ready():
                if time.monotonic() > until:
                    raise CommandError(f"The API, or Milvus Lite, did not answer within {START_SECONDS:.0f} s.")
                supervisor.tick()
                time.sleep(0.1)
            console.print(f"PostgreSQL, the API ({address.url}) and {settings.WORKERS} workers are up.")
            if search_engine.is_ours():
                console.print(f"Milvus Lite ({settings.MILVUS_URI}) finds the candidates of searches.")
            console.print("The consumer of the queue is up.\n" if settings.SQS_QUEUE_URL else "")
            yield supervisor
        finally:
            supervisor.stop()


@contextmanager
def demo_client(address: Address, email: str) -> Iterator[ApiClient]:
    """Yield a client of the demo tenant, with a new token and without documents of an earlier demo."""
    user, _ = User.objects.get_or_create(email=email, defaults={"username": email})
    client = ApiClient(address.url, api_tokens.create_token(user, name="demo"))
    try:
        client.delete_documents()
        yield client
    finally:
        ApiToken.objects.filter(user=user, name="demo").delete()
