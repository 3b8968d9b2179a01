"""Stages that are done and wait for a commit that they share (``Step.joins_commit``)."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs import lifecycle
from jobs.models import UploadJob
from jobs.pipeline import Step

MAX_UNSAVED_SECONDS = 1.0  # what a crash may cost, besides the stage that runs
# Metrics count an event when no older one can come (metrics.event_counts): none is written with an older time.
MAX_EVENT_AGE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class UnsavedStage:
    """A stage that is done: its job as it was, the write that is still to be made, its move to ``step``."""

    job: UploadJob
    step: Step
    code: str | None
    event: Mapping[str, Any]
    fields: Mapping[str, Any]
    at: float  # by time.monotonic, as the beginning
    began: float = 0.0
    write: Callable[[], object] | None = None
    durable: bool = False
    when_lost: Callable[[], object] | None = None
    result: Any = None

    def next_job(self) -> UploadJob:
        """Return the job as the move will leave it, with the same ``document``."""
        job = copy.copy(self.job)
        job.stage, job.total_pct = self.step.stage.value, max(job.total_pct, self.step.total_pct)
        job.attempts, job.retry_count, job.last_error, job.traceback = 1, 0, None, None
        for name, value in merge_fields([{name: getattr(job, name) for name in self.fields}, self.fields]).items():
            setattr(job, name, value)
        return job


class WriteFailed(Exception):
    """The write of an unsaved stage failed for ``reason``; nothing was written."""

    def __init__(self, stage: UnsavedStage, reason: Exception) -> None:
        self.stage, self.reason = stage, reason
        super().__init__(stage.job.stage)


def move_params(written: Sequence[tuple[UnsavedStage, float]]) -> dict[str, Any]:
    """Return the arguments of ``lifecycle.advance_stages``; with each stage come the seconds of all writes so far.

    An event's time counts each write to its own stage, as if the stages had been saved one by one.
    """
    (first, _), (last, _), now, events = written[0], written[-1], time.monotonic(), []
    for number, (stage, seconds) in enumerate(written):
        # A microsecond apart at least: the order of events is that of their times.
        age = min(now - stage.at - seconds, MAX_EVENT_AGE_SECONDS) - number / 1e6
        payload = {"stage": stage.step.stage.value, "attempt": 1, "from": stage.job.stage, **stage.event}
        events.append({"code": stage.code, "age": age, "payload": payload})
    fields = merge_fields([stage.fields for stage, _ in written])
    stages = {"first": first.job.stage, "stage": last.step.stage.value, "total_pct": last.step.total_pct}
    return {"events": events, "fields": fields, **stages}


def merge_fields(many: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields that one move sets instead of several: costs are added, JSON is merged, the last one holds."""
    merged: dict[str, Any] = {}
    for fields in many:
        for name, value in fields.items():
            if name in lifecycle.MERGED_FIELDS:
                value = {**merged.get(name, {}), **value}
            elif name == "cost_cents":
                value = merged.get(name, 0) + value
            merged[name] = value
    return merged
