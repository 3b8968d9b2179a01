"""Cost of API calls: CPU time, statements and latency of polling, searching and declaring, against a bare view."""

import json
import os
import socket
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from itertools import count, cycle, islice
from select import select
from statistics import median
from typing import Any
from uuid import UUID

import psutil
from django.conf import settings

from accessa.embedded_postgres.server import EmbeddedServer
from accounts import api_tokens
from accounts.models import User
from benchmarks import database, server_costs, subprocesses
from benchmarks.http_load import Call, send_calls
from benchmarks.report import Result, percentile, print_progress
from search import services as search_services
from testing.factories import JobFactory
from testing.factories.searchable_documents import create_searchable_document
from testing.ports import free_port

SUMMARY = __doc__
EMBEDDER = "testing.embedders.InstantEmbedder"
BARE, JOB, SEARCH, UPLOAD, STREAM = "bare_view", "job", "search", "upload", "stream"
# CPU milliseconds a call, of Python and of PostgreSQL; PostgreSQL's of a search beyond the search itself.
GOALS = {JOB: (4.0, 1.5), SEARCH: (9.0, 1.0), UPLOAD: (8.0, 3.0)}
FEW, MANY = 8, 64  # clients at once
SERVERS = (
    ("accessa.wsgi:application", "--config python:accessa.server.gunicorn_conf"),
    ("benchmarks.baselines.bare_view:application", "--worker-class gthread --workers 2 --threads 16"),
)
JOBS_OF_A_TENANT, PASSAGES = 10, 20
# Turns with and without stalled readers. The median of their ratios of p95 may be this much.
STALLED_TURNS, STALLED_TOLERANCE = 9, 1.2
UPLOADS_OF_A_TENANT = 24  # one after the other tenant's: all clients are the same tenant's, and within its limit
WORDS = ("deductible", "copay", "hospital", "network", "dental", "claim", "referral", "premium")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--calls", type=int, default=2000, help="of each kind and number of clients")
    parser.add_argument("--tenants", type=int, default=50)
    parser.add_argument("--stalled", type=int, default=0, help="readers that ask for a stream and read nothing of it")
    parser.add_argument("--only", choices=[JOB, SEARCH, UPLOAD], help="beside the bare view")


def measure(options: Namespace) -> Result:
    settings.EMBEDDER = EMBEDDER
    calls, tenants, clients = (40, 3, (FEW,)) if options.quick else (options.calls, options.tenants, (FEW, MANY))
    server_costs.count_all_statements()
    traffic = Traffic(tenants)
    kinds = [BARE, options.only] if options.only else [BARE, JOB, SEARCH, UPLOAD]
    with ExitStack() as stack:
        servers = _start_servers(stack)
        stalled: dict[str, Any] = {}
        rows = {kind: _measure_kind(kind, traffic, calls, clients, *servers[kind == BARE]) for kind in kinds}
        if options.stalled:
            stalled = _measure_stalled(options.stalled, traffic, calls, servers[False][1])
    itself = _search_itself(traffic, calls // 4) if SEARCH in kinds else {}
    polled = rows.get(JOB) or rows[kinds[-1]]
    total, bare = (_cpu(each["clients_8"]) for each in (polled, rows[BARE]))
    return Result(
        name="api",
        value=total,
        unit="CPU ms a call of GET /job, Python and PostgreSQL",
        against="a bare REST framework view that reads the row, in the same run",
        ratio=bare / total,
        goal=sum(GOALS[JOB]),
        ok=all(_meets_goal(kind, rows[kind]["clients_8"], itself) for kind in kinds if kind != BARE)
        and stalled.get("ratio", 1.0) <= STALLED_TOLERANCE,
        details={"calls": calls, "load": os.getloadavg()[0], **rows, "search_itself": itself, "stalled": stalled},
    )


def _cpu(row: dict[str, float]) -> float:
    return row["python_ms"] + row["postgres_ms"]


def _meets_goal(kind: str, row: dict[str, float], itself: dict[str, float]) -> bool:
    python, postgres = GOALS[kind]
    beyond = row["postgres_ms"] - (itself["postgres_ms"] if kind == SEARCH else 0.0)
    return row["python_ms"] <= python and beyond <= postgres


def _start_servers(stack: ExitStack) -> list[tuple[psutil.Process, int]]:
    """Start our API and the bare view, each under gunicorn with as many workers and threads."""
    bare = f"{EmbeddedServer().params()['host']}|accessa"
    started = []
    for application, options in SERVERS:
        port = free_port()
        command = [sys.executable, "-m", "gunicorn", application, *options.split(), "--bind", f"127.0.0.1:{port}"]
        program = subprocesses.running_program(command, EMBEDDER=EMBEDDER, BARE_VIEW_DATABASE=bare)
        started.append((stack.enter_context(program), port))
    return started


def _measure_kind(
    kind: str, traffic: "Traffic", calls: int, numbers: Sequence[int], process: psutil.Process, port: int
) -> dict[str, dict[str, float]]:
    requests = traffic.calls(kind)
    subprocesses.wait_until(lambda: _answers(port, next(requests)), seconds=60)
    rows = {}
    for clients in numbers:
        send_calls(port, list(islice(requests, 2 * clients)), clients=clients)  # each thread connects
        batch = list(islice(requests, calls))
        with server_costs.measured_costs(process) as costs:
            times = send_calls(port, batch, clients=clients)
        latency = {"p50_ms": percentile(times, 0.5), "p95_ms": percentile(times, 0.95)}
        rows[f"clients_{clients}"] = server_costs.per_call(costs, calls) | latency
        print_progress(kind, clients, {name: round(value, 2) for name, value in rows[f"clients_{clients}"].items()})
    return rows


def _measure_stalled(readers: int, traffic: "Traffic", calls: int, port: int) -> dict[str, Any]:
    """Measure the p95 of ``GET /job`` by turns: without, and while streamed answers have begun that nobody reads."""
    polls, streams = traffic.calls(JOB), traffic.calls(STREAM)
    turns = []
    for _ in range(STALLED_TURNS):
        alone = _turn_p95(port, polls, calls)
        with ExitStack() as stack:
            stalled = [stack.enter_context(_stalled_reader(port, call)) for call in islice(streams, readers)]
            for reader in stalled:
                select([reader], [], [], 60)  # the answer, or the refusal of one too many, has begun
            turns.append((alone, _turn_p95(port, polls, calls)))
    ratio = median(beside / alone for alone, beside in turns)
    print_progress("stalled", readers, turns)
    return {"readers": readers, "p95_ms_alone_and_beside": turns, "ratio": ratio, "tolerance": STALLED_TOLERANCE}


def _turn_p95(port: int, polls: Iterator[Call], calls: int) -> float:
    return percentile(send_calls(port, list(islice(polls, max(FEW, calls // STALLED_TURNS))), clients=FEW), 0.95)


@contextmanager
def _stalled_reader(port: int, call: Call) -> Iterator[socket.socket]:
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        reader.connect(("127.0.0.1", port))
        head = "".join(f"{name}: {value}\r\n" for name, value in call.headers.items())
        body = call.body or b""
        head += f"Content-Length: {len(body)}\r\n"
        reader.sendall(f"POST /answer HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n".encode() + body)
        yield reader


def _answers(port: int, call: Call) -> bool:
    try:
        return bool(send_calls(port, [call], clients=1))
    except OSError:
        return False


class Traffic:
    """Tenants with tokens, jobs and passages, and endless calls of theirs, each within its tenant's limits."""

    def __init__(self, tenants: int) -> None:
        self._tenants = [self._create_tenant() for _ in range(tenants)]
        self._jobs = [(token, JobFactory.create(user_id=user_id).pk)
                      for user_id, token in self._tenants for _ in range(JOBS_OF_A_TENANT)]  # fmt: skip
        for user_id, _ in self._tenants:
            texts = [f"Passage {n}: the plan pays {n} percent of {' '.join(WORDS)} care." for n in range(PASSAGES)]
            create_searchable_document(user_id, texts)
        database.analyze_tables("documents", "upload_jobs", "document_chunks", "document_terms", "users", "api_tokens")

    def _create_tenant(self) -> tuple[UUID, str]:
        name = f"tenant{User.objects.count()}@example.org"
        user = User.objects.create(username=name, email=name)
        return user.pk, api_tokens.create_token(user, name="benchmark")

    def calls(self, kind: str) -> Iterator[Call]:
        return {BARE: self._polls, JOB: self._polls, SEARCH: self._searches, UPLOAD: self._uploads,
                STREAM: self._streams}[kind]()  # fmt: skip

    def _polls(self) -> Iterator[Call]:
        for token, job_id in cycle(self._jobs):
            yield Call("GET", f"/job/{job_id}", None, _headers(token))

    def _searches(self) -> Iterator[Call]:
        for (_, token), question in zip(cycle(self._tenants), questions(), strict=False):
            yield Call("POST", "/search", json.dumps({"query": question}).encode(), _headers(token))

    def _streams(self) -> Iterator[Call]:
        for (_, token), question in zip(cycle(self._tenants), questions(), strict=False):
            body = json.dumps({"question": question, "stream": True}).encode()
            yield Call("POST", "/answer", body, _headers(token))

    def _uploads(self) -> Iterator[Call]:
        for number in count():
            if number % UPLOADS_OF_A_TENANT == 0:
                _, token = self._create_tenant()
            sha = sha256(str(number).encode()).hexdigest()
            body = {"filename": "plan.pdf", "bytes_len": 1000 + number, "mime": "application/pdf", "sha256": sha}
            yield Call("POST", "/upload", json.dumps(body).encode(), _headers(token))

    def search_all(self, searches: int) -> None:
        for (user_id, _), question in islice(zip(cycle(self._tenants), questions(), strict=False), searches):
            search_services.search(user_id=user_id, query=question)


def questions() -> Iterator[str]:
    return (f"what does the plan pay for {word} care {number}" for number, word in enumerate(cycle(WORDS)))


def _headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}


def _search_itself(traffic: Traffic, searches: int) -> dict[str, float]:
    """Measure the service that ``POST /search`` calls, in this process."""
    traffic.search_all(10)
    with server_costs.measured_costs(psutil.Process()) as costs:
        traffic.search_all(searches)
    return server_costs.per_call(costs, searches)
