"""Following jobs from the command line: a bar per document, a line per stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from uuid import UUID

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

ENDED = ("done", "deadletter")


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job as somebody who watches it sees it, through the API or in the database."""

    job_id: UUID
    stage: str
    state: str
    total_pct: float
    failure: str | None = None


def follow_jobs(
    names: dict[UUID, str],
    look: Callable[[], Iterable[JobStatus]],
    console: Console,
    *,
    seconds: float,
    every: float = 0.3,
) -> dict[UUID, JobStatus]:
    """Draw the jobs in ``names`` until each has ended or ``seconds`` have passed; return how each was seen last."""
    last: dict[UUID, JobStatus] = {}
    until = time.monotonic() + seconds
    with _progress(console) as progress:
        bars = {job_id: progress.add_task(name, total=100.0, stage="declared") for job_id, name in names.items()}
        while time.monotonic() < until:
            for seen in look():
                if seen.job_id in bars:
                    _draw(progress, bars[seen.job_id], names[seen.job_id], seen, last.get(seen.job_id))
                    last[seen.job_id] = seen
            if len(last) == len(names) and all(seen.state in ENDED for seen in last.values()):
                break
            time.sleep(every)
    return last


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:<36.36}"), BarColumn(24), TextColumn("{task.percentage:>3.0f}%"))
    return Progress(*columns, TextColumn("{task.fields[stage]:<28}"), TimeElapsedColumn(), console=console)


def _draw(progress: Progress, bar: TaskID, name: str, seen: JobStatus, before: JobStatus | None) -> None:
    shown = seen.failure or ("searchable" if seen.state == "done" else seen.stage)
    progress.update(bar, completed=seen.total_pct, stage=shown)
    if before is None or (before.stage, before.state) != (seen.stage, seen.state):
        progress.console.print(f"  {name}: {seen.stage} ({seen.state})" + (f" {seen.failure}" if seen.failure else ""))
    if seen.state in ENDED:
        progress.stop_task(bar)
