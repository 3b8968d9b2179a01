"""Throughput of the embed stage against a fake OpenAI: share of the in-flight limit and of the token budget used."""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from uuid import uuid4

import psutil
from django.conf import settings
from django.db import connection

from benchmarks import database, noop_jobs, subprocesses
from benchmarks.memory_watch import sampled
from benchmarks.report import Result, print_progress
from jobs.models import UploadJob
from testing.factories.pending_documents import create_chunked_job, passage_texts
from testing.fakes.openai import KEY

SUMMARY = __doc__
GOAL = 0.9
GROWTH_GOAL = 20.0  # MB, between the second quarter of a run and its last
WORDS = 340  # of a passage: about 450 tokens, of the chunker's 512
BURST_SHARE = 30 / 60  # of a minute's budget may be spent at once (vendors/rate_limit.py)
TIMEOUT_SECONDS = 240.0
TABLES = ("documents", "upload_jobs", "events", "document_chunks", "document_vector_buffer")
PURCHASE_TABLES = "purchases, vendor_rate_limits, vendor_breakers"
PURCHASES_SPAN = "SELECT sum(quantity), extract(epoch FROM max(settled_at) - min(created_at))::float8 FROM purchases"
# The middle four fifths: neither the making of the client's first connections nor the last, half empty round.
STEADY_RATE = """
    SELECT (count(*) * 0.8 / nullif(extract(epoch FROM percentile_disc(0.9) WITHIN GROUP (ORDER BY settled_at)
        - percentile_disc(0.1) WITHIN GROUP (ORDER BY settled_at)), 0))::float8 FROM purchases"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--delay", type=float, default=0.2, help="seconds a call takes")
    # On two cores a second worker measures the machine: the fake and PostgreSQL want one of them.
    parser.add_argument("--workers", type=int, default=1)


@dataclass(frozen=True)
class Run:
    """One run: how long it took from the first purchase to the last, for how many tokens, and what workers held."""

    seconds: float
    calls_per_second: float
    tokens: int
    resident: dict[int, list[float]]

    @property
    def growth(self) -> float:
        """The most, in MB, that a worker's memory grew between the second quarter and the last."""
        return max((_growth(samples) for samples in self.resident.values() if len(samples) >= 8), default=0.0)


def measure(options: Namespace) -> Result:
    chunks = 512 if options.quick else options.chunks
    at_once = settings.EMBED_IN_FLIGHT * options.workers
    with running_fake_openai(options.delay) as url:
        free = _run(chunks, options.workers, url, tokens_per_minute=0)
        allowed = at_once * settings.EMBED_BATCH / options.delay
        rate = free.calls_per_second * settings.EMBED_BATCH
        print_progress(f"{rate:.0f} of {allowed:.0f} chunks a second; workers grew {free.growth:.1f} MB")
        # Half of it at once, then as fast as the budget comes in, for half a minute.
        limit = int(free.tokens / (BURST_SHARE + 0.5))
        bound = free if options.quick else _run(chunks, options.workers, url, tokens_per_minute=limit)
    ideal = (bound.tokens - limit * BURST_SHARE) * 60 / limit
    print_progress(f"{bound.seconds:.1f} s where a budget of {limit} tokens a minute allows {ideal:.1f}")
    share, of_budget, growth = rate / allowed, ideal / bound.seconds, max(free.growth, bound.growth)
    return Result(
        name="embed",
        value=rate,
        unit="chunks/s",
        against=f"{at_once} calls in flight of {settings.EMBED_BATCH} texts, {options.delay:g} s each",
        ratio=share,
        goal=GOAL,
        ok=share >= GOAL and of_budget >= GOAL and growth <= GROWTH_GOAL,
        details={
            "chunks": chunks,
            "workers": options.workers,
            "allowed_chunks_per_second": allowed,
            "seconds": free.seconds,
            "budget_share": of_budget,
            "budget_tokens_per_minute": limit,
            "budget_seconds": bound.seconds,
            "budget_ideal_seconds": ideal,
            "worker_growth_mb": growth,
            "goal_growth_mb": GROWTH_GOAL,
            "worker_peak_mb": max(
                (max(samples) for leg in (free, bound) for samples in leg.resident.values()), default=0.0
            ),
        },
    )


@contextmanager
def running_fake_openai(delay: float) -> Iterator[str]:
    """OpenAI's protocol in a process of its own; the URL of it."""
    state = Path(settings.VAR).parent / "vendors.json"
    command = [sys.executable, "-m", "testing.fakes", "--openai-port", "0", "--openai-delay", str(delay)]
    with subprocesses.running_program([*command, "--openai-guess-tokens", "--state", str(state)]):
        subprocesses.wait_until(state.exists, seconds=30, pause=0.05)
        yield json.loads(state.read_text())["openai"]["url"]


def _run(chunks: int, workers: int, url: str, *, tokens_per_minute: int) -> Run:
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {noop_jobs.TABLES}, {PURCHASE_TABLES} CASCADE")
    each = -(-chunks // workers)
    for number in range(workers):
        passages = passage_texts(each, words=WORDS, about=number)
        create_chunked_job(passages, user_id=uuid4(), counts=[len(text) // 4 + 1 for text in passages])
    database.analyze_tables(*TABLES)
    environment = {
        "EMBEDDER": "openai", "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": url, "WORKERS": str(workers),
        "OPENAI_REQUESTS_PER_MINUTE": "0", "OPENAI_TOKENS_PER_MINUTE": str(tokens_per_minute),
    }  # fmt: skip
    with subprocesses.running_cluster(**environment) as process, _recorded_memory(process) as resident:
        subprocesses.wait_until(_all_embedded, seconds=TIMEOUT_SECONDS)
    with connection.cursor() as cursor:
        cursor.execute(PURCHASES_SPAN)
        tokens, seconds = cursor.fetchone()
        cursor.execute(STEADY_RATE)
        (steady,) = cursor.fetchone()
    return Run(seconds, steady or 0.0, int(tokens), resident)


def _all_embedded() -> bool:
    dead = UploadJob.objects.filter(state="deadletter").values_list("last_error", flat=True).first()
    if dead:
        raise RuntimeError(f"A document failed: {dead}")
    return not UploadJob.objects.exclude(state="done").exists()


@contextmanager
def _recorded_memory(process: psutil.Process) -> Iterator[dict[int, list[float]]]:
    """Record the memory of each descendant, in MB, four times a second until the end of the block."""
    samples: dict[int, list[float]] = {}

    def take() -> None:
        for child in process.children(recursive=True):
            with suppress(psutil.Error):
                samples.setdefault(child.pid, []).append(child.memory_info().rss / 2**20)

    with sampled(take, seconds=0.25):
        yield samples


def _growth(samples: Sequence[float]) -> float:
    quarter = len(samples) // 4
    return fmean(samples[-quarter:]) - fmean(samples[quarter : 2 * quarter])
