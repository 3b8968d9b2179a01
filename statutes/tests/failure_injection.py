"""Replacement of a stage of the statute pipeline by one that fails."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from accessa import pipelines
from jobs.choices import Stage
from jobs.pipeline import Handler

PIPELINES = dict(pipelines.PIPELINES)


@contextmanager
def replace_stage(stage: Stage, handler: Handler) -> Iterator[None]:
    """Let a stage have another handler until the end of the block."""
    steps = tuple(
        replace(step, handler=handler, skippable=False) if step.stage == stage else step
        for step in pipelines.STATUTE.steps
    )
    PIPELINES["statute"] = replace(pipelines.STATUTE, steps=steps)
    try:
        yield
    finally:
        PIPELINES["statute"] = pipelines.STATUTE
