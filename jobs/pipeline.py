"""The plan of a pipeline: which handler serves a stage, and what proves that the stage was reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from jobs.outcomes import Outcome
from jobs.states import Stage

if TYPE_CHECKING:
    from jobs.claims import Claim

Handler = Callable[["Claim"], Outcome]
# Takes job ids that stand at (or past) a stage, returns those for which its invariants do not hold, and why.
Invariant = Callable[[Sequence[UUID]], dict[UUID, str]]


DEFAULT_TIME_LIMIT = 60.0


@dataclass(frozen=True, slots=True)
class Step:
    """One row of the plan. ``limit`` is the longest a try of the stage may take, in seconds."""

    stage: Stage
    handler: Handler
    invariant: Invariant
    time_limit: float = DEFAULT_TIME_LIMIT
    # Whether the stage's work may be passed over when the next stage's proof already holds.
    skippable: bool = False
    # Share of the whole that is done when the stage is reached, in percent.
    total_pct: float = 0.0


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str
    steps: tuple[Step, ...]
    # Whether only campaigns send jobs this way.
    campaigns_only: bool = False

    def step(self, stage: str) -> Step:
        return self.steps[self._index(stage)]

    def next_step(self, stage: str) -> Step | None:
        """Return the step that follows ``stage``, or None when it is the last."""
        following = self._index(stage) + 1
        return self.steps[following] if following < len(self.steps) else None

    def steps_through(self, stage: str) -> tuple[Step, ...]:
        """Return the steps reached by a job that stands at ``stage``, the latest last."""
        return self.steps[: self._index(stage) + 1]

    def _index(self, stage: str) -> int:
        for index, step in enumerate(self.steps):
            if step.stage == stage:
                return index
        raise ImproperlyConfigured(f"Pipeline {self.name!r} has no stage {stage!r}.")


@cache
def _pipelines(path: str) -> Mapping[str, Pipeline]:
    found: Mapping[str, Pipeline] = import_string(path)
    return found


def get_pipeline(name: str) -> Pipeline:
    """Return a pipeline of the table that ``settings.JOBS_PIPELINES`` names, as Django finds its URLconf."""
    table = _pipelines(settings.JOBS_PIPELINES)
    if name not in table:
        raise ImproperlyConfigured(f"There is no pipeline {name!r} in {settings.JOBS_PIPELINES}.")
    return table[name]


def pipeline_names() -> list[str]:
    """Return the names of the pipelines of this deployment."""
    return sorted(_pipelines(settings.JOBS_PIPELINES))
