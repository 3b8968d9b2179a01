"""Timeline of a job: its events, and what the time between them was spent on."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from accounts.number_formats import format_duration
from jobs.choices import ACTIVE, State
from jobs.lifecycle import MOVES
from jobs.models import Event, UploadJob

FIRST, LAST, MOST = 20, 80, 2_000

PHASES: Mapping[str, str] = {
    **{move.code: str(move.target) for move in MOVES.values()},
    **dict.fromkeys(("UPLOAD_ACCEPTED", "GAVE_WAY", "MODEL_CHANGED"), str(State.QUEUED)),
    **dict.fromkeys(("SUPERSEDED", "MOVED_BY_STAFF"), str(State.DEADLETTER)),
    "WAITING": "waiting",
}
PHASE_NAMES = {
    "queued": "in the queue", "working": "working", "waiting": "waiting", "retryable": "pause before the next attempt",
    "done": "done", "deadletter": "dead",
}  # fmt: skip
SHOWN_PAYLOAD = (
    "from",
    "reason",
    "code",
    "by",
    "worker",
    "parser",
    "last_error",
    "missing",
    "chunks",
    "vectors",
    "pages",
    "heading_jumps",
    "ragged_tables",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """An event, and what its job did until the next one. ``lasted`` is None once the job has ended."""

    event: Event
    phase: str
    lasted: timedelta | None

    @property
    def duration(self) -> str:
        return format_elapsed(self.lasted)

    @property
    def payload(self) -> list[tuple[str, Any]]:
        return [(name, self.event.payload[name]) for name in SHOWN_PAYLOAD if self.event.payload.get(name) is not None]


def format_elapsed(elapsed: timedelta | None) -> str:
    return "" if elapsed is None else format_duration(max(0.0, elapsed.total_seconds()))


@dataclass(frozen=True, slots=True)
class Timeline:
    """The first events and the last ones; ``is_cut`` when there are others between."""

    first: list[Entry]
    last: list[Entry]

    @property
    def is_cut(self) -> bool:
        return bool(self.last)


def job_timeline(job: UploadJob, *, whole: bool = False) -> Timeline:
    """Return the job's events, the oldest first: up to ``MOST`` if ``whole``, else the first and the last ones."""
    events = Event.objects.filter(job_id=job.pk)
    most = MOST if whole else FIRST + LAST
    first = list(events.order_by("ts")[: most + 1])
    if len(first) <= most:
        return Timeline(_entries(job, first, is_end=True), [])
    last_count = MOST // 2 if whole else LAST
    last = list(events.order_by("-ts")[:last_count])[::-1]
    return Timeline(_entries(job, first[: most - last_count], is_end=False), _entries(job, last, is_end=True))


def _entries(job: UploadJob, events: list[Event], *, is_end: bool) -> list[Entry]:
    entries, phase = [], str(State.QUEUED)
    ends: list[datetime | None] = [event.ts for event in events[1:]]
    ends.append(timezone.now() if is_end and job.state in ACTIVE else None)
    for event, end in zip(events, ends, strict=False):
        phase = PHASES.get(event.code, "working" if event.type == Event.Type.STAGE_DONE else phase)
        entries.append(Entry(event, PHASE_NAMES.get(phase, phase), end - event.ts if end else None))
    return entries
