"""Canaries in real processes: no log line, row or file repeats a secret."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import requests
from django.conf import settings
from django.db import connection

from accessa.pipelines import INSURANCE
from jobs.models import Event, UploadJob
from testing import log_leaks
from testing.api_server import ApiServer, running_api_server
from testing.cluster import Cluster, create_jobs, running_cluster, wait_until
from testing.fakes.faults import Fault, replacement
from testing.fakes.http_messages import Request, Response, json_response
from testing.fakes.llamaparse import LlamaParseServer
from testing.fakes.openai import OpenAIServer
from testing.log_leaks import CANARIES, FILENAME, PASSWORD, POLICY, QUESTION, SECRETS, SSN
from testing.log_leaks.pipelines import LEAKY
from testing.pdfs import text_pdf
from testing.personas import Person, upload_request
from testing.ports import free_port

pytestmark = pytest.mark.slow

CORRELATION = "5d0c2c6e-7a55-4f0e-9d6a-0f6f3f1f7a11"
PDF = text_pdf(f"Member {SSN} holds {POLICY}.", f"The deductible of {POLICY} is 500 dollars.")
# Tables that staff, operators or other systems read; whose own text is a tenant's is not among them.
READ = (
    "events", "upload_jobs", "audit_entries", "django_q_task", "rate_windows", "vendor_rate_limits", "vendor_breakers",
    "vendor_calls", "vendor_purchases", "webhook_deliveries", "clusters", "django_admin_log",
)  # fmt: skip


class Listening(OpenAIServer):
    """Remembers by which name each call was made."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.names: list[str] = []

    def respond(self, request: Request) -> Response:
        self.names.append(request.headers.get("X-Client-Request-Id", ""))
        return super().respond(request)


class Product:
    """A served product with vendors' fakes, and everything that came out of it."""

    def __init__(self, api: ApiServer, workers: Cluster, parser: LlamaParseServer, openai: Listening) -> None:
        self.api, self.workers, self.parser, self.openai = api, workers, parser, openai

    def upload(self, person: Person, **headers: str) -> tuple[UUID, UUID]:
        """Declare a file and put its bytes to the signed URL; return the ids of its job and of itself."""
        signed = {"Authorization": f"Bearer {person.token}", **headers}
        body = upload_request(PDF) | {"filename": f"{FILENAME} {SSN}.pdf"}
        answer = requests.post(f"{self.api.url}/upload", json=body, headers=signed, timeout=20)
        assert answer.ok, answer.text
        upload = answer.json()
        put = requests.put(
            upload["signed_url"], PDF, headers={"Content-Type": "application/pdf", **headers}, timeout=20
        )
        assert put.ok, put.text
        return UUID(upload["job_id"]), UUID(upload["document_id"])

    @property
    def output(self) -> str:
        return self.api.log_text + self.workers.log_text

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Every line of both, parsed; what `manage.py` says of the settings comes before and is no log."""
        return [json.loads(line) for output in (self.api.log_text, self.workers.log_text) for line in _logged(output)]


def _logged(output: str) -> list[str]:
    return output[output.index("{") :].splitlines()


def vendors(parser: LlamaParseServer, openai: OpenAIServer, url: str) -> dict[str, Any]:
    return {
        **SECRETS,
        "PARSER": "llamaparse",
        "LLAMAPARSE_API_KEY": parser.key,
        "LLAMAPARSE_BASE_URL": parser.url,
        "LLAMAPARSE_CALLBACK_URL": f"{url}/webhooks/llamaparse",
        "PARSE_POLL_FIRST_SECONDS": 60,  # the callback alone brings it on
        "EMBEDDER": "openai",
        "OPENAI_BASE_URL": openai.url,
        "PUBLIC_URL": url,
        "STORAGE_ROOT": settings.STORAGE_ROOT,
        "JOBS_PIPELINES": "testing.log_leaks.pipelines.PIPELINES",
        "JOBS_RETRY_BASE_SECONDS": 0.05,
        "LOG_FORMAT": "json",
        "SECURE_COOKIES": 0,
    }


@pytest.fixture
def product(transactional_db: None) -> Iterator[Product]:
    port = free_port()
    with ExitStack() as stack:
        parser = stack.enter_context(LlamaParseServer(delay=0.2))
        openai = stack.enter_context(Listening(key=log_leaks.KEY))
        environment = vendors(parser, openai, f"http://127.0.0.1:{port}") | {"LOG_LEVEL": "DEBUG"}
        api = running_api_server(application="testing.log_leaks.leaking_wsgi:application", port=port, **environment)
        workers = stack.enter_context(running_cluster(workers=1, **environment))
        yield Product(stack.enter_context(api), workers, parser, openai)


def ended(job_id: UUID) -> bool:
    return UploadJob.objects.filter(pk=job_id, state__in=("done", "deadletter")).exists()


def test_events_and_log_lines_of_a_job_carry_its_request_id(ana: Person, product: Product) -> None:
    job_id, document_id = product.upload(ana, **{"X-Correlation-ID": CORRELATION.upper()})

    wait_until(lambda: ended(job_id), seconds=40)
    wait_until(lambda: '"FINALIZED"' in product.output, seconds=5)

    assert UploadJob.objects.get(pk=job_id).state == "done"
    events = Event.objects.filter(document_id=document_id)
    assert {str(hits) for hits in events.values_list("correlation_id", flat=True)} == {CORRELATION}
    ids = {str(job_id), str(document_id)}
    about = [line for line in product.lines if ids & {line.get("job"), line.get("document")}]
    assert {line.get("correlation") for line in about} == {CORRELATION}
    assert {line["route"] for line in about if line["event"] == "Request."} == {
        "/upload", "/storage/{bucket}/{name}", "/webhooks/llamaparse",
    }  # fmt: skip
    stages = [line["stage"] for line in about if line["event"] == "Stage ended."]
    assert {*stages} == {step.stage for step in INSURANCE.steps}
    assert about[-1]["outcome"] == "FINALIZED"
    assert not [line for line in product.lines if str(job_id) in json.dumps(line) and line not in about]
    assert product.openai.names, "nothing was embedded"
    assert all(name.startswith(f"{CORRELATION}/") for name in product.openai.names)
    assert len({*product.openai.names}) == len(product.openai.names)


def misuse(ana: Person, product: Product) -> None:
    """Send what tenants, strangers and vendors send that belongs in no log, wherever it can be sent."""
    url, session = product.api.url, requests.Session()
    bearer = {"Authorization": f"Bearer {ana.token}"}
    output = {"X-Note": POLICY, "User-Agent": POLICY, "Referer": f"http://x/{POLICY}", "X-Correlation-ID": POLICY}
    ask: dict[str, Any] = {"headers": bearer | output, "timeout": 20}
    session.post(f"{url}/search", json={"query": f"{QUESTION} {SSN}"}, **ask)
    session.post(f"{url}/search", json={"query": f"{QUESTION} " * 5000}, **ask)
    session.post(f"{url}/upload", data=f'{{"filename": "{FILENAME}", {SSN}', **ask)
    session.post(f"{url}/upload", json={"filename": FILENAME, "mime": SSN, "bytes_len": QUESTION, "sha256": SSN}, **ask)
    session.get(f"{url}/documents/{FILENAME}?q={QUESTION}&token=canary-token-6612", **ask)
    session.put(f"{url}/storage/raw/{FILENAME}.pdf?token=canary-token-6612", data=SSN, timeout=20)
    session.get(f"{url}/documents", headers={"Authorization": "Bearer canary-token-6612"}, timeout=20)
    session.get(f"{url}/documents", headers={"Host": f"{FILENAME}.example"}, timeout=20)
    session.request(f"X{SSN}", f"{url}/documents", timeout=20)
    session.post(f"{url}/webhooks/llamaparse", data=SSN, headers={"LC-Signature": f"sha256={SSN}"}, timeout=20)
    for page in ("/sign-in", "/admin/login/"):
        session.get(f"{url}{page}", timeout=20)
        form = {"username": POLICY, "email": f"{POLICY}@example.org", "password": PASSWORD}
        for secret in ("", session.cookies.get("csrftoken", "")):
            session.post(f"{url}{page}", data=form | {"csrfmiddlewaretoken": secret}, timeout=20)
    session.get(f"{url}/leak?q={QUESTION}", **ask)
    session.get(f"{url}/leak?database=1&q={QUESTION}", **ask)
    session.get(f"{url}/metrics", timeout=20)
    malformed(url, f"GET /{FILENAME} HTTP/1.1\r\nHost: x\r\n{SSN} {POLICY}\r\n\r\n")
    malformed(url, f"{POLICY} {SSN}\r\n\r\n")


def malformed(url: str, text: str) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as wire:
        wire.sendall(text.encode())
        wire.recv(1000)


def rows() -> str:
    """All that is in the tables that others than the tenant read."""
    hits = []
    with connection.cursor() as cursor:
        tables = set(connection.introspection.table_names(cursor))
        for table in (table for table in READ if table in tables):
            cursor.execute(f"SELECT t::text FROM {table} t")
            hits += [f"{table}: {row[0]}" for row in cursor.fetchall()]
    return "\n".join(hits)


def files() -> str:
    """Return PostgreSQL's own log files."""
    folder = Path(os.environ["ACCESSA_VAR"])
    return "\n".join(path.read_text(errors="replace") for path in folder.rglob("*.log"))


def leaks(text: str, *more: str) -> dict[str, str]:
    """Return which canary is where."""
    hits = {}
    for canary in (*CANARIES, *more, "Failing row", "storage://raw/canary"):
        at = text.find(canary)
        if at >= 0:
            hits[canary] = text[max(0, at - 300) : at + 100]
    return hits


def test_nothing_that_leaves_the_processes_repeats_a_canary(ana: Person, product: Product) -> None:
    product.openai.inject_fault("POST /v1/embeddings", echo(), times=1)
    job_id, _ = product.upload(ana)
    with connection.cursor() as cursor:
        for name in LEAKY:
            create_jobs(cursor, 1, name)

    misuse(ana, product)
    wait_until(lambda: ended(job_id), seconds=60)
    wait_until(lambda: _said_enough(product), seconds=40)
    metrics = requests.get(f"{product.api.url}/metrics", timeout=20).text
    product.api.stop()
    product.workers.stop()

    assert UploadJob.objects.get(pk=job_id).state == "done"
    assert leaks(product.output, ana.token) == {}
    own = UploadJob.objects.get(pk=job_id)
    stored = rows().replace(own.raw_path, "").replace(own.parsed_path or own.raw_path, "")
    assert leaks(stored, ana.token) == {}
    assert leaks(files() + metrics, ana.token) == {}
    assert all({"timestamp", "level", "logger", "event"} <= line.keys() for line in product.lines)


def _said_enough(product: Product) -> bool:
    tried = UploadJob.objects.filter(pipeline__in=["leaky", "leaky-constraint", "leaky-child"])
    drains = '"DrainFailed' in product.output or "leaky-drain" in product.workers.log_text
    return drains and set(tried.values_list("state", flat=True)) == {"deadletter"}


def echo() -> Fault:
    """Return a failure whose error repeats the request."""
    body = {"error": {"message": log_leaks.ALL, "code": POLICY, "type": SSN}, "detail": log_leaks.ALL}
    return replacement("echo", json_response(body, 500))


def leaked_by_itself(*options: str) -> str:
    """Run what leaks in a process of its own, without servers; return all that it printed."""
    environment = {**os.environ, **SECRETS, "LOG_LEVEL": "DEBUG", "LOG_FORMAT": "json"}
    command = [sys.executable, "-c", "from testing.log_leaks import main; main()", *options]
    ran = subprocess.run(command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True)
    assert ran.returncode == 1
    return ran.stdout + ran.stderr


def test_a_leak_is_reported_without_its_values() -> None:
    output = leaked_by_itself()

    assert leaks(output) == {}
    entries = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert len(entries) == len(log_leaks.LEAKS) + 1
    assert entries[-1]["error"] == "ValueError"


def test_without_the_cleaner_every_canary_is_heard() -> None:
    assert {*leaks(leaked_by_itself("--uncleaned"))} >= {*CANARIES}
