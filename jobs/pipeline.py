"""Pipelines: the table of stages with the handler, invariant and time limit of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, cast
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from jobs.choices import Stage
from jobs.outcomes import Outcome

if TYPE_CHECKING:
    from jobs.claims import Claim

Handler = Callable[["Claim"], Outcome]
# Takes ids of jobs that stand at (or past) a stage; returns those that violate it, each with the reason.
Invariant = Callable[[Sequence[UUID]], dict[UUID, str]]


DEFAULT_TIME_LIMIT = 60.0


@dataclass(frozen=True, slots=True)
class Step:
    """A stage of a pipeline. ``time_limit`` is that of one attempt, in seconds."""

    stage: Stage
    handler: Handler
    invariant: Invariant
    time_limit: float = DEFAULT_TIME_LIMIT
    skippable: bool = False  # whether to skip the handler when the next stage's invariant already holds
    total_pct: float = 0.0  # share of the whole that is done when the stage is reached


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str
    steps: tuple[Step, ...]
    campaigns_only: bool = False

    def step(self, stage: str) -> Step:
        return self.steps[self._index(stage)]

    def next_step(self, stage: str) -> Step | None:
        """Return the step that follows ``stage``, or None when it is the last."""
        index = self._index(stage) + 1
        return self.steps[index] if index < len(self.steps) else None

    def steps_through(self, stage: str) -> tuple[Step, ...]:
        """Return the steps up to and including ``stage``."""
        return self.steps[: self._index(stage) + 1]

    def _index(self, stage: str) -> int:
        for index, step in enumerate(self.steps):
            if step.stage == stage:
                return index
        raise ImproperlyConfigured(f"Pipeline {self.name!r} has no stage {stage!r}.")


@cache
def _pipelines(path: str) -> Mapping[str, Pipeline]:
    return cast("Mapping[str, Pipeline]", import_string(path))


def get_pipeline(name: str) -> Pipeline:
    """Return a pipeline of the table that ``settings.JOBS_PIPELINES`` names."""
    table = _pipelines(settings.JOBS_PIPELINES)
    if name not in table:
        raise ImproperlyConfigured(f"There is no pipeline {name!r} in {settings.JOBS_PIPELINES}.")
    return table[name]


def pipeline_names() -> list[str]:
    return sorted(_pipelines(settings.JOBS_PIPELINES))
