"""Uploads at a fixed rate through the API: latency, seconds until done, answers, and what grows meanwhile."""

import http.client
import json
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import psutil
from django.conf import settings

from accounts import api_tokens
from accounts.models import User
from benchmarks import job_timings, noop_jobs, subprocesses
from benchmarks.idle_cluster import count_connections, private_and_shared_mb
from benchmarks.memory_watch import sampled
from benchmarks.report import Result, percentile, print_progress
from jobs.models import UploadJob
from testing.personas import plan_pdf, upload_request
from testing.ports import free_port

SUMMARY = __doc__
UPLOAD_GOAL_MS, DONE_GOAL_SECONDS, FAIRNESS_GOAL, SLOPE_GOAL = 500.0, 10.0, 3.0, 1.0
TENANTS, SENDERS = 50, 64
UNLIMITED = {"UPLOADS_PER_DAY": "1000000", "UPLOAD_REQUESTS_PER_MINUTE": "1000000"}
SAMPLE_SECONDS = 2.0
SOAK_SECONDS = 600.0  # shorter runs say nothing of growth
RETRY_LATER = {429, 503}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--rate", type=float, default=25.0, help="uploads a second, whatever the answers take")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument(
        "--queued", type=int, default=0, help="documents of one tenant that wait when a second round begins"
    )
    parser.add_argument("--limits", action="store_true", help="the limits of tenants as they are by default")


def measure(options: Namespace) -> Result:
    seconds, queued = (5.0, min(options.queued, 50)) if options.quick else (options.seconds, options.queued)
    noop_jobs.truncate_tables()
    limits = {} if options.limits else UNLIMITED
    port = free_port()
    command = (
        f"-m gunicorn accessa.wsgi:application --config python:accessa.server.gunicorn_conf --bind 127.0.0.1:{port}"
    )
    with ExitStack() as stack:
        api = stack.enter_context(subprocesses.running_program([sys.executable, *command.split()], **limits))
        cluster = stack.enter_context(subprocesses.running_cluster())
        client = ApiClient(port)
        subprocesses.wait_until(client.is_up, seconds=60)
        growth = stack.enter_context(recorded_growth(api, cluster))
        first = _run_round("steady", client, options.rate, seconds)
        second = {}
        if queued:
            _send("crowd", client, rate=1000.0, uploads=queued, tenants=1)
            second = _run_round("beside", client, options.rate, seconds)
        subprocesses.wait_until(job_timings.jobs_have_ended, seconds=3600)
    fairness = second["done_p95_seconds"] / first["done_p95_seconds"] if second else 0.0
    grown = growth.summary()
    unknown = {status for each in (first, second) for status in each.get("answers", {})} - {200} - RETRY_LATER
    lost = UploadJob.objects.exclude(state="done").count()
    return Result(
        name="load",
        value=first["upload_p99_ms"],
        unit="ms of an upload (declared and sent), p99 from the moment at which it was due",
        against="the goal",
        ratio=first["upload_p99_ms"] / UPLOAD_GOAL_MS,
        goal=UPLOAD_GOAL_MS,
        ok=first["upload_p99_ms"] <= UPLOAD_GOAL_MS
        and fairness <= FAIRNESS_GOAL
        and (seconds < SOAK_SECONDS or grown["mb_a_minute"] <= SLOPE_GOAL)
        and not client.without_retry_after
        and not unknown
        and not lost,
        details={
            "rate": options.rate,
            "seconds": seconds,
            "load": os.getloadavg()[0],
            "steady": first,
            "beside_a_crowd": second,
            "fairness": fairness,
            "goal_fairness": FAIRNESS_GOAL,
            "goal_done_p95_seconds_at_half_load": DONE_GOAL_SECONDS,
            "growth": grown,
            "goal_mb_a_minute": SLOPE_GOAL,
            "without_retry_after": client.without_retry_after,
            "not_done": lost,
        },
    )


def _run_round(name: str, client: "ApiClient", rate: float, seconds: float) -> dict[str, Any]:
    began = time.monotonic()
    times, answers = _send(name, client, rate=rate, uploads=int(rate * seconds), tenants=TENANTS)
    sent = time.monotonic() - began
    tenants = User.objects.filter(username__startswith=f"{name}-")
    jobs = UploadJob.objects.filter(user_id__in=tenants.values("pk"))
    subprocesses.wait_until(lambda: not jobs.exclude(state__in=job_timings.ENDED).exists(), seconds=3600)
    ends = jobs.filter(state="done").values_list("created_at", "finished_at")
    done = [(finished - created).total_seconds() for created, finished in ends if finished]
    row = {
        "uploads_a_second": len(times) / sent,
        "documents_a_second": len(done) / (time.monotonic() - began),
        "upload_p50_ms": percentile(times, 0.5),
        "upload_p95_ms": percentile(times, 0.95),
        "upload_p99_ms": percentile(times, 0.99),
        "done_p50_seconds": percentile(done, 0.5),
        "done_p95_seconds": percentile(done, 0.95),
        "answers": dict(answers),
    }
    print_progress(name, row)
    return row


def _send(
    name: str, client: "ApiClient", *, rate: float, uploads: int, tenants: int
) -> tuple[list[float], Counter[int]]:
    """Send uploads when they are due, late ones at once; return milliseconds since they were due, and the answers."""
    tokens = [_create_tenant(f"{name}-{number}") for number in range(tenants)]
    began = time.monotonic()

    def send(number: int) -> tuple[float, int]:
        due = began + number / rate
        time.sleep(max(0.0, due - time.monotonic()))
        status = client.upload(tokens[number % tenants], plan_pdf(f"{name} care {number}"))
        return (time.monotonic() - due) * 1000, status

    with ThreadPoolExecutor(SENDERS) as pool:
        ends = list(pool.map(send, range(uploads)))
    return [milliseconds for milliseconds, _ in ends], Counter(status for _, status in ends)


def _create_tenant(name: str) -> str:
    user = User.objects.create(username=name, email=f"{name}@example.org")
    return api_tokens.create_token(user, name="benchmark")


class ApiClient:
    """Uploads files, each over a connection of its own: as clients that come and go do."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.without_retry_after = 0

    def is_up(self) -> bool:
        with suppress(OSError):
            return bool(urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=5))
        return False

    def upload(self, token: str, content: bytes) -> int:
        """Declare a file and send its bytes; return the status of the last answer."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)) as connection:
            body = json.dumps(upload_request(content)).encode()
            status, answer = self._call(connection, "POST", "/upload", body, headers)
            if status != http.HTTPStatus.OK:
                return status
            url = urlsplit(json.loads(answer)["signed_url"])
            headers = {"Content-Type": "application/pdf"}
            return self._call(connection, "PUT", f"{url.path}?{url.query}", content, headers)[0]

    def _call(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        if response.status in RETRY_LATER and not response.getheader("Retry-After"):
            self.without_retry_after += 1
        return response.status, response.read()


@dataclass
class Growth:
    """Samples of a group of processes: minutes, resident MB, descriptors, connections, temporary files."""

    samples: list[tuple[float, float, int, int, int]] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Fit MB a minute over the last two thirds; the counts are those of the first and the last sample of them."""
        warm = self.samples[len(self.samples) // 3 :]
        minutes, megabytes = ([sample[column] for sample in warm] for column in (0, 1))
        slope = float(np.polyfit(minutes, megabytes, 1)[0]) if len(warm) > 2 else 0.0
        counts = dict(zip(("descriptors", "connections", "temporary_files"),
                          ([warm[0][n], warm[-1][n]] for n in (2, 3, 4)), strict=True))  # fmt: skip
        return {"mb_a_minute": slope, "resident_mb": [megabytes[0], max(megabytes), megabytes[-1]], **counts}


@contextmanager
def recorded_growth(*programs: psutil.Process) -> Iterator[Growth]:
    growth, began = Growth(), time.monotonic()

    def take() -> None:
        tree = [each for program in programs for each in (program, *program.children(recursive=True))]
        megabytes = _total(tree, private_and_shared_mb)
        descriptors = int(_total(tree, lambda each: each.num_fds()))
        files = sum(1 for _ in Path(settings.VAR).rglob("*.tmp"))
        growth.samples.append(((time.monotonic() - began) / 60, megabytes, descriptors, count_connections(), files))

    with sampled(take, seconds=SAMPLE_SECONDS):
        yield growth


def _total(processes: list[psutil.Process], number: Callable[[psutil.Process], float]) -> float:
    total = 0.0
    for each in processes:
        with suppress(psutil.Error):
            total += number(each)
    return total
