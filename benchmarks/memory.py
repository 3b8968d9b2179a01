"""Peak memory of a worker and its parser process with the largest documents allowed."""

import contextlib
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings

from benchmarks import job_timings, large_pdfs, stored_pdfs, subprocesses
from benchmarks.memory_watch import sampled
from benchmarks.report import Result, print_progress
from embeddings.models import DocumentChunk
from jobs.models import UploadJob

SUMMARY = __doc__
GOAL = 600.0
CHUNKS_GOAL = 10_000
PARSER = "documents.parsers.pdf_fork_server"
# The second document is longer than the product accepts: only its passages matter here.
RAISED_LIMITS = {"MAX_PAGES": "100000", "PDF_CPU_SECONDS": "500"}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--embedder", default="local")


def measure(options: Namespace) -> Result:
    folder = Path(settings.VAR).parent
    pages = 20 if options.quick else 200
    large = _peaks(
        large_pdfs.write_image_pdf(folder / "large.pdf", pages=pages, megabytes=pages / 8 - 1), options.embedder
    )
    many = _peaks(large_pdfs.write_text_pdf(folder / "many.pdf", chunks=pages * 60), options.embedder)
    worker = max(large["worker_mb"], many["worker_mb"])
    whole = options.quick or many["chunks"] >= CHUNKS_GOAL
    return Result(
        name="memory",
        value=worker,
        unit="MB resident at the peak, model included",
        against="the goal",
        ratio=worker / GOAL,
        goal=GOAL,
        ok=bool(worker <= GOAL and whole and large["state"] == many["state"] == "done"),
        details={"large_file": large, "many_chunks": many},
    )


def _peaks(path: Path, embedder: str) -> dict[str, Any]:
    print_progress(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    stored_pdfs.create_jobs(stored_pdfs.store_pdfs([path]))
    with subprocesses.running_cluster(EMBEDDER=embedder, **RAISED_LIMITS) as process, recorded_peaks(process) as peaks:
        subprocesses.wait_until(job_timings.jobs_have_ended, seconds=540)
    job = UploadJob.objects.get()
    return {
        "worker_mb": peaks.get("worker", 0.0),
        "parser_mb": peaks.get("parser", 0.0),
        "file_mb": path.stat().st_size / 2**20,
        "pages": job_timings.count_pages(),
        "chunks": DocumentChunk.objects.count(),
        "state": job.state,
        "error": job.last_error,
        "seconds": job_timings.elapsed_seconds(),
        "stage_seconds": job_timings.stage_seconds(),
    }


@contextlib.contextmanager
def recorded_peaks(process: psutil.Process) -> Iterator[dict[str, float]]:
    """Record the largest VmHWM, in MB, of the process's descendants, by their role."""
    peaks: dict[str, float] = {}

    def take() -> None:
        for child in process.children(recursive=True):
            with contextlib.suppress(psutil.Error, OSError):
                kind = "parser" if PARSER in child.cmdline() else "worker"
                peaks[kind] = max(peaks.get(kind, 0.0), _high_water(child.pid))

    with sampled(take, seconds=0.05):
        yield peaks


def _high_water(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0
