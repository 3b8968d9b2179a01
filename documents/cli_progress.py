"""Progress bars for jobs on the command line: a bar per document, a line per stage."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from uuid import UUID

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

ENDED = ("done", "deadletter")


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The state of a job, read through the API or from the database."""

    job_id: UUID
    stage: str
    state: str
    total_pct: float
    failure: str | None = None

    @property
    def is_done(self) -> bool:
        return self.state == "done"


def follow_jobs(
    names: dict[UUID, str],
    poll: Callable[[], Iterable[JobStatus]],
    console: Console,
    *,
    seconds: float,
    every: float = 0.3,
) -> dict[UUID, JobStatus]:
    """Draw the jobs in ``names`` until each has ended or ``seconds`` have passed; return the last status of each."""
    last: dict[UUID, JobStatus] = {}
    until = time.monotonic() + seconds
    columns = (TextColumn("{task.description:<36.36}"), BarColumn(24), TextColumn("{task.percentage:>3.0f}%"))
    stage_column = TextColumn("{task.fields[stage]:<28}")
    with Progress(*columns, stage_column, TimeElapsedColumn(), console=console) as progress:
        bars = {job_id: progress.add_task(name, total=100.0, stage="declared") for job_id, name in names.items()}
        while time.monotonic() < until:
            for status in poll():
                if status.job_id not in bars:
                    continue
                before, last[status.job_id] = last.get(status.job_id), status
                stage = status.failure or ("searchable" if status.state == "done" else status.stage)
                progress.update(bars[status.job_id], completed=status.total_pct, stage=stage)
                if before is None or (before.stage, before.state) != (status.stage, status.state):
                    failure = f" {status.failure}" if status.failure else ""
                    progress.console.print(f"  {names[status.job_id]}: {status.stage} ({status.state}){failure}")
                if status.state in ENDED:
                    progress.stop_task(bars[status.job_id])
            if len(last) == len(names) and all(status.state in ENDED for status in last.values()):
                break
            time.sleep(every)
    return last
