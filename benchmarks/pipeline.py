"""Throughput of real PDFs through the whole pipeline, against a script that does the same work without a queue."""

import json
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from django.conf import settings

from benchmarks import database, job_timings, stored_pdfs, subprocesses
from benchmarks.report import Result, print_progress

SUMMARY = __doc__
RATIO_GOAL, ONE_PROCESS_GOAL, PAGES_GOAL = 1.20, 0.95, 200.0
TIMEOUT_SECONDS = 280.0
TABLES = ("documents", "upload_jobs", "events", "document_chunks", "document_chunk_buffer", "document_vector_buffer")
INSTANT = "testing.embedders.InstantEmbedder"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--path", type=Path, action="append", default=[], help="more PDFs: a file or a folder")
    parser.add_argument("--rounds", type=int, default=3)


def measure(options: Namespace) -> Result:
    files = stored_pdfs.readable_pdfs(options.path)
    by_size = sorted(files, key=lambda path: path.stat().st_size)
    # At least 20 users, so that the cap on one binds nobody.
    files = by_size[:3] if options.quick else files * (1 + 20 // len(files))
    ours, two, instant = [], [], []
    stages: dict[str, float] = {}
    pages = 0
    for number in range(1 if options.quick else options.rounds):
        ours.append(_run_accessa(files, "local"))
        stages, pages = job_timings.stage_seconds(), job_timings.count_pages()
        two.append(_run_bare_script(files, 2))
        instant.append(ours[-1] if options.quick else _run_accessa(files, INSTANT))
        print_progress(
            f"round {number + 1}: ours {ours[-1]:.2f} s, the script {two[-1]:.2f} s, instant {instant[-1]:.2f} s"
        )
    one = two[-1] if options.quick else _run_bare_script(files, 1)
    ratio = median(mine / its for mine, its in zip(ours, two, strict=True))
    ratio_to_one, speed = median(ours) / one, pages / median(instant)
    return Result(
        name="pipeline",
        value=median(ours),
        unit="s",
        against="a script of two processes: parse, normalize, chunk, embed, COPY",
        ratio=ratio,
        goal=RATIO_GOAL,
        ok=ratio <= RATIO_GOAL and ratio_to_one <= ONE_PROCESS_GOAL and speed >= PAGES_GOAL,
        details={
            "files": len(files),
            "pages": pages,
            "script_seconds": median(two),
            "script_one_process_seconds": one,
            "ratio_to_one_process": ratio_to_one,
            "goal_ratio_to_one_process": ONE_PROCESS_GOAL,
            "rounds": {"ours": ours, "script": two, "instant": instant},
            "pages_per_second": speed,
            "goal_pages_per_second": PAGES_GOAL,
            "pages_per_second_local": pages / median(ours),
            "stage_seconds": stages,
        },
    )


def _run_accessa(files: Sequence[Path], embedder: str) -> float:
    stored_pdfs.create_jobs(stored_pdfs.store_pdfs(files))
    database.analyze_tables(*TABLES)
    with subprocesses.running_cluster(EMBEDDER=embedder):
        subprocesses.wait_until(job_timings.jobs_have_ended, seconds=TIMEOUT_SECONDS)
    return job_timings.elapsed_seconds()


def _run_bare_script(files: Sequence[Path], processes: int) -> float:
    stored = stored_pdfs.store_pdfs(files)
    database.analyze_tables(*TABLES)
    root = Path(settings.STORAGE_ROOT)
    work = [
        (str(root / each.path.removeprefix("storage://")), str(each.document_id), str(each.user_id)) for each in stored
    ]
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks.baselines.bare_pipeline", str(processes)],
        cwd=subprocesses.ROOT, input=json.dumps(work), stdout=subprocess.PIPE, text=True, check=True,
        timeout=TIMEOUT_SECONDS,
    )  # fmt: skip
    return float(answer.stdout)
