"""Success rate of all collected PDFs through the pipeline, and the error codes of the others."""

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import job_timings, stored_pdfs, subprocesses
from benchmarks.report import Result
from jobs.models import UploadJob

SUMMARY = __doc__
GOAL, SECONDS_GOAL = 0.95, 300.0
BUGS = {"internal", "WORKER_LOST", "STAGE_TIMEOUT"}  # codes that no file should be able to earn


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--path", type=Path, action="append", default=[], help="more PDFs: a file or a folder")


def measure(options: Namespace) -> Result:
    files = _files(options)
    stored = stored_pdfs.store_pdfs(files)
    stored_pdfs.create_jobs(stored)
    with subprocesses.running_cluster():
        subprocesses.wait_until(job_timings.jobs_have_ended, seconds=540)
    ends = {job.document_id: _end(job) for job in UploadJob.objects.all()}
    outcomes = [{"file": _display_path(each.source), **ends[each.document_id]} for each in stored]
    readable, textless = set(stored_pdfs.readable_pdfs(options.path)), stored_pdfs.textless_pdfs()
    expected = [end for end, each in zip(outcomes, stored, strict=True) if each.source in readable]
    layered = [end for end, each in zip(outcomes, stored, strict=True) if each.source in readable - textless]
    share = sum(end["code"] == "done" for end in layered) / len(layered)
    slowest = max(end["seconds"] for end in outcomes)
    codes = Counter(end["code"] for end in outcomes)
    return Result(
        name="success",
        value=share,
        unit="share of the files with a text layer",
        against="the same files",
        ratio=share / GOAL,
        goal=GOAL,
        ok=share >= GOAL and slowest < SECONDS_GOAL and not BUGS & set(codes),
        details={
            "files": len(outcomes),
            "with_text_layer": len(layered),
            "share_without_leaving_out_scans": sum(end["code"] == "done" for end in expected) / len(expected),
            "slowest_seconds": slowest,
            "goal_seconds": SECONDS_GOAL,
            "codes": dict(codes.most_common()),
            "codes_by_folder": _by_folder(outcomes),
            "not_done": [end for end in expected if end["code"] != "done"],
        },
    )


def _files(options: Namespace) -> list[Path]:
    readable = stored_pdfs.readable_pdfs(options.path)
    if options.quick:
        return sorted(readable, key=lambda path: path.stat().st_size)[:10]
    hostile = [path for path in sorted(stored_pdfs.COLLECTION.rglob("*.pdf")) if path not in readable]
    return readable + hostile


def _end(job: UploadJob) -> dict[str, Any]:
    code = "done" if job.state == "done" else (job.last_error or {}).get("code", "?")
    assert job.started_at is not None
    assert job.finished_at is not None
    return {"code": code, "seconds": (job.finished_at - job.started_at).total_seconds()}


def _display_path(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _by_folder(outcomes: Sequence[dict[str, Any]]) -> dict[str, dict[str, int]]:
    folders: dict[str, Counter[str]] = {}
    for end in outcomes:
        folders.setdefault(end["file"].split("/")[0], Counter())[end["code"]] += 1
    return {folder: dict(codes) for folder, codes in folders.items()}
