"""Failures as data: what a tenant is told, what staff find, and what must never be written down."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.types.json import Jsonb

from jobs.outcomes import Permanent, Retryable

if TYPE_CHECKING:
    from jobs.claims import Claim


def named(error: BaseException) -> str:
    """Name an error without its values: a database's DETAIL and many messages carry tenant text."""
    cause = error.__cause__ if isinstance(error.__cause__, psycopg.Error) else error
    if isinstance(cause, psycopg.Error) and cause.diag.sqlstate:
        constraint = f" ({cause.diag.constraint_name})" if cause.diag.constraint_name else ""
        return f"{type(cause).__name__} {cause.diag.sqlstate}{constraint}"
    return type(error).__name__


def frames(error: BaseException) -> str:
    """Return where an error was raised, file by file, without the values that its message may hold."""
    return "".join(traceback.format_tb(error.__traceback__)) + named(error)


def recorded(claim: Claim, failure: Permanent | Retryable) -> dict[str, Any]:
    """Return the two columns of a failed try: for everybody, and for staff."""
    job = claim.job
    shown = {"code": failure.code, "detail": failure.detail, "stage": job.stage, "attempt": job.attempts}
    trace = frames(failure.__cause__ or failure) if failure.code == "internal" else None
    return {"error": Jsonb(shown), "traceback": trace}
