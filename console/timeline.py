"""What happened to a job, and what the time between went to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from jobs.lifecycle import MOVES
from jobs.models import Event, UploadJob
from jobs.states import ACTIVE, State

FIRST, LAST, MOST = 20, 80, 2_000

_PHASES: Mapping[str, str] = {
    **{move.code: str(move.target) for move in MOVES.values()},
    **dict.fromkeys(("UPLOAD_ACCEPTED", "GAVE_WAY", "MODEL_CHANGED"), str(State.QUEUED)),
    **dict.fromkeys(("SUPERSEDED", "MOVED_BY_STAFF"), str(State.DEADLETTER)),
    "WAITING": "waiting",
}
_SPENT = {
    "queued": "in the queue", "working": "working", "waiting": "waiting", "retryable": "pause before the next try",
    "done": "done", "deadletter": "dead",
}  # fmt: skip
_TOLD = ("from", "reason", "code", "by", "worker", "parser", "last_error", "missing", "chunks", "vectors", "pages")


def span(lasted: timedelta | None) -> str:
    """Return a duration as people read it, to two or three digits."""
    if lasted is None:
        return ""
    seconds = max(0.0, lasted.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


@dataclass(frozen=True, slots=True)
class Entry:
    """An event, and what its job did until the next one. ``lasted`` is None once the job has ended."""

    event: Event
    spent: str
    lasted: timedelta | None

    @property
    def seconds(self) -> str:
        return span(self.lasted)

    @property
    def told(self) -> list[tuple[str, Any]]:
        """Codes, counts and ids of its payload, as the journal keeps them."""
        return [(name, self.event.payload[name]) for name in _TOLD if self.event.payload.get(name) is not None]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The first events and the last ones; ``is_cut`` when there are others between."""

    first: list[Entry]
    last: list[Entry]

    @property
    def is_cut(self) -> bool:
        return bool(self.last)


def of(job: UploadJob, *, whole: bool = False) -> Timeline:
    """Return the job's events, the oldest first: all of them up to ``MOST`` if ``whole``, else both ends."""
    events = Event.objects.filter(job_id=job.pk)
    most = MOST if whole else FIRST + LAST
    first = list(events.order_by("ts")[: most + 1])
    if len(first) <= most:
        return Timeline(_entries(job, first, ends=True), [])
    ending = MOST // 2 if whole else LAST
    last = list(events.order_by("-ts")[:ending])[::-1]
    return Timeline(_entries(job, first[: most - ending], ends=False), _entries(job, last, ends=True))


def _entries(job: UploadJob, events: list[Event], *, ends: bool) -> list[Entry]:
    entries, phase = [], str(State.QUEUED)
    untils: list[datetime | None] = [event.ts for event in events[1:]]
    untils.append(timezone.now() if ends and job.state in ACTIVE else None)
    for event, until in zip(events, untils, strict=False):
        phase = _PHASES.get(event.code, "working" if event.type == Event.Type.STAGE_DONE else phase)
        entries.append(Entry(event, _SPENT.get(phase, phase), until - event.ts if until else None))
    return entries
