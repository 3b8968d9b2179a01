"""Seconds from message to published statute (300 articles), against a bare script; worker memory over 100 of them."""

import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from statistics import median
from typing import Any

import psutil

from benchmarks import job_timings, memory_watch, moto_server, subprocesses, vector_import
from benchmarks.moto_server import BUCKET, Aws
from benchmarks.report import Result, print_progress
from benchmarks.statute_generator import FORMATS
from benchmarks.statute_messages import StatuteQueue, format_of
from jobs.models import UploadJob
from statutes.models import Law
from statutes.s3 import keys

SUMMARY = __doc__ or ""
GOAL = 3.0
MOST_GROWTH_MB = 20.0  # of the worker, from its tenth law to its last
WORKER = [sys.executable, "manage.py", "consume_sqs"]
SETTINGS = {"EMBEDDER": "testing.embedders.InstantEmbedder"}
Seconds = dict[str, list[float]]  # by format


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--articles", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3, help="laws of each format that are timed")
    parser.add_argument("--laws", type=int, default=100, help="laws in all of one worker; at least one is not timed")


def measure(options: Namespace) -> Result:
    articles, rounds, laws = (5, 1, 5) if options.quick else (options.articles, options.rounds, options.laws)
    with moto_server.running_aws() as here:
        before = _run_bare_script(StatuteQueue(here, here.create_queue(), articles), rounds)
        ours, memory = _run_worker(StatuteQueue(here, here.create_queue(), articles), rounds, laws)
        # On both sides: the machine may be busier in one hour than in the next.
        after = before if options.quick else _run_bare_script(StatuteQueue(here, here.create_queue(), articles), rounds)
        uploads = _time_uploads(here, rounds)
        read_back = vector_import.measure(here, [f"{name}-0" for name in FORMATS])
    bare = {name: median(before[name] + after[name]) for name in FORMATS}
    slowest = max(ours, key=lambda name: median(ours[name]))
    value = median(ours[slowest])
    return Result(
        name="statutes",
        value=value,
        unit=f"s a law of {articles} articles, of {slowest}, the slowest format",
        against="a bare script: download, read, cut, embed, sixteen uploads at once, no database",
        ratio=bare[slowest] / value,
        goal=GOAL,
        ok=value <= GOAL and memory["grown_mb"] <= MOST_GROWTH_MB,
        details={
            "seconds": {name: median(times) for name, times in ours.items()},
            "bare_seconds": bare,
            "uploads_alone_seconds": uploads,  # of which next to all is the fake's: it answers 300 to 400 a second
            "chunks": Law.objects.get(pk=f"{slowest}-0").chunk_count,
            **memory,
            **read_back,
        },
    )


def _run_worker(orders: StatuteQueue, rounds: int, laws: int) -> tuple[Seconds, dict[str, Any]]:
    """Let one worker carry ``laws`` laws: first one by one, timed, then the rest from a queue that is full."""
    first, timed, rest = plan_laws(rounds, laws)
    seconds: Seconds = {name: [] for name in FORMATS}
    orders.upload([first, *timed, *rest])
    with subprocesses.running_program(WORKER, **SETTINGS, **orders.aws.environment(orders.queue_url)) as worker:
        _run_law(orders, worker, first)  # everything is loaded
        for law_id in timed:
            seconds[format_of(law_id)].append(_run_law(orders, worker, law_id))
            print_progress(f"{law_id}: {seconds[format_of(law_id)][-1]:.2f} s")
        stages = {name: total / (len(timed) + 1) for name, total in job_timings.stage_seconds().items()}
        orders.send(rest)
        return seconds, {
            **_run_rest(worker, since=len(timed) + 1, laws=len(timed) + 1 + len(rest)),
            "stage_seconds": stages,
        }


def plan_laws(rounds: int, laws: int) -> tuple[str, list[str], list[str]]:
    """Return the ids of the law that loads everything, of those that are timed, and of the rest: at least one."""
    timed = [f"{name}-{number}" for number in range(rounds) for name in FORMATS]
    rest = islice(cycle(FORMATS), max(1, laws - len(timed) - 1))
    return "xml-first", timed, [f"{name}-more-{number}" for number, name in enumerate(rest)]


def _run_law(orders: StatuteQueue, worker: psutil.Process, law_id: str) -> float:
    """Send a law's message; return the seconds until it is deleted."""
    began, before = time.perf_counter(), _count_published(worker)
    orders.send([law_id])
    subprocesses.wait_until(
        lambda: _count_published(worker) > before, seconds=120, pause=0.02
    )  # the database's word costs the server nothing
    subprocesses.wait_until(lambda: orders.is_empty, seconds=60, pause=0.02)
    return time.perf_counter() - began


def _count_published(worker: psutil.Process) -> int:
    """Return how many laws have been published. Raises ``RuntimeError`` when there will be no more."""
    if worker.status() == psutil.STATUS_ZOMBIE:
        raise RuntimeError("The worker has ended.")
    for error in UploadJob.objects.filter(state="deadletter").values_list("last_error", flat=True):
        raise RuntimeError(f"A law failed: {error}")
    return UploadJob.objects.filter(state="done").count()


def _run_rest(worker: psutil.Process, *, since: int, laws: int) -> dict[str, Any]:
    """Wait for all laws; return their rate, and what the worker and its zygote hold in MB after ``since`` and all."""
    began = time.monotonic()
    early, late = memory_watch.medians_by_count(worker, lambda: _count_published(worker), since=since, until=laws)
    return {
        "laws": laws,
        "laws_per_minute": 60 * (laws - since) / (time.monotonic() - began),
        f"mb_after_{since}": early,
        f"mb_after_{laws}": late,
        "grown_mb": late - early,
    }


def _run_bare_script(orders: StatuteQueue, rounds: int) -> Seconds:
    law_ids = ["xml-bare", *(f"{name}-bare-{number}" for number in range(rounds) for name in FORMATS)]
    orders.upload(law_ids)
    orders.send(law_ids)
    command = [sys.executable, "-m", "benchmarks.baselines.bare_statutes", orders.aws.endpoint, orders.queue_url]
    done = subprocess.run(
        [*command, str(len(law_ids))],
        env=os.environ | SETTINGS,
        cwd=subprocesses.ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    seconds = list(zip(law_ids, json.loads(done.stdout), strict=True))[1:]  # at the first, everything is loaded
    return {name: [each for law_id, each in seconds if format_of(law_id) == name] for name in FORMATS}


def _time_uploads(here: Aws, rounds: int) -> float:
    """Return how long the objects of one law take to be put there by themselves, as many at once as we do."""
    manifest = json.loads(_read_object(here, keys.manifest("pdf-0")))
    contents = [
        _read_object(here, each["key"]) for each in (manifest["law"], manifest["embeddings"], *manifest["chunks"])
    ]

    def put(number: int) -> None:
        here.s3.put_object(Bucket=BUCKET, Key=f"alone/{number}", Body=contents[number])

    times = []
    with ThreadPoolExecutor(moto_server.CONCURRENT_UPLOADS) as pool:
        for _ in range(rounds):
            began = time.perf_counter()
            list(pool.map(put, range(len(contents))))
            times.append(time.perf_counter() - began)
    return median(times)


def _read_object(here: Aws, key: str) -> bytes:
    content: bytes = here.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    return content
