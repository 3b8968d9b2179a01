"""Pipelines: the stages of a job in order, each with its handler, invariant and time limit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.utils.module_loading import import_string

from jobs.choices import Stage
from jobs.outcomes import Outcome

if TYPE_CHECKING:
    from jobs.claims import Claim

Handler = Callable[["Claim"], Outcome]
# What must be true in the database for a job to stand at a stage. Takes ids of jobs that stand at (or past) it;
# returns those that violate it, each with the reason.
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
    # Whether it may share the commit of the stage before: until it opens a transaction of its claim, its handler reads
    # no rows that the stages before write, buys nothing and tells nobody.
    joins_commit: bool = False
    # Whether its jobs may be claimed and finished many at a time while they take no time (jobs.claim_batches): it buys
    # nothing, writes to the database only and tells nobody.
    joins_batch: bool = False


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str
    steps: tuple[Step, ...]
    campaigns_only: bool = False

    def step(self, stage: str) -> Step:
        for step in self.steps:
            if step.stage == stage:
                return step
        raise ImproperlyConfigured(f"Pipeline {self.name!r} has no stage {stage!r}.")

    def next_step(self, stage: str) -> Step | None:
        """Return the step that follows ``stage``, or None when it is the last."""
        following = self.steps[self.steps.index(self.step(stage)) + 1 :]
        return following[0] if following else None

    def steps_through(self, stage: str) -> tuple[Step, ...]:
        return self.steps[: self.steps.index(self.step(stage)) + 1]


def get_pipeline(name: str) -> Pipeline:
    """Return a pipeline of the table that ``settings.JOBS_PIPELINES`` names."""
    table: Mapping[str, Pipeline] = import_string(settings.JOBS_PIPELINES)
    if name not in table:
        raise ImproperlyConfigured(f"There is no pipeline {name!r} in {settings.JOBS_PIPELINES}.")
    return table[name]


def joins_batch(pipeline: str, stage: str) -> bool:
    """Tell whether jobs at the stage may be claimed many at a time; not if the pipeline is not deployed here."""
    try:
        return get_pipeline(pipeline).step(stage).joins_batch
    except ImproperlyConfigured:
        return False


def sql_invariant(sql: str) -> Invariant:
    """Return the invariant of a query that selects ``(job_id, reason)`` of the jobs in ``%(jobs)s`` that violate it."""

    def check(job_ids: Sequence[UUID]) -> dict[UUID, str]:
        with connection.cursor() as cursor:
            cursor.execute(sql, {"jobs": list(job_ids)})
            return dict(cursor.fetchall())

    return check


def all_invariants(*invariants: Invariant) -> Invariant:
    """Return the invariant that holds when all of ``invariants`` do; the first that does not gives the reason."""

    def check(job_ids: Sequence[UUID]) -> dict[UUID, str]:
        violations: dict[UUID, str] = {}
        for invariant in invariants:
            left = [job_id for job_id in job_ids if job_id not in violations]
            violations |= invariant(left) if left else {}
        return violations

    return check


_cache: ContextVar[dict[Hashable, str | OSError | None] | None] = ContextVar("invariant_cache", default=None)


@contextmanager
def shared_checks() -> Iterator[None]:
    """Check several stages as of one moment: within the block each stored object is read once."""
    token = _cache.set({})
    try:
        yield
    finally:
        _cache.reset(token)


def cached_check(key: Hashable, check: Callable[[], str | None]) -> str | None:
    """Return ``check()``, cached within ``shared_checks``. An ``OSError`` of the store is cached and raised again."""
    cache = _cache.get()
    if cache is None:
        return check()
    if key not in cache:
        try:
            cache[key] = check()
        except OSError as error:
            cache[key] = error
    reason = cache[key]
    if isinstance(reason, OSError):
        raise reason
    return reason
