"""Failures as data: what a tenant is told, what staff find, and what must never be written down."""

from __future__ import annotations

import errno
import traceback
from typing import TYPE_CHECKING, Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db.utils import InterfaceError, OperationalError
from psycopg.types.json import Jsonb

from jobs.error_codes import BUG, CONFIGURATION, STORAGE_UNAVAILABLE
from jobs.outcomes import Permanent, Retryable, Wait

if TYPE_CHECKING:
    from jobs.claims import Claim


def safe_error_name(error: BaseException) -> str:
    """Name an error without its values: a database's DETAIL and many messages carry tenant text."""
    cause = error.__cause__ if isinstance(error.__cause__, psycopg.Error) else error
    if isinstance(cause, psycopg.Error) and cause.diag.sqlstate:
        constraint = f" ({cause.diag.constraint_name})" if cause.diag.constraint_name else ""
        return f"{type(cause).__name__} {cause.diag.sqlstate}{constraint}"
    return type(error).__name__


# A disk that is full or away: every document would fail alike, so none is charged for it.
_AWAY = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT}


def is_database_unavailable(error: Exception) -> bool:
    """Tell a database that cannot be reached from one that refused a statement (a deadlock, a timeout)."""
    if not isinstance(error, (OperationalError, InterfaceError)):
        return False
    state = error.__cause__.sqlstate if isinstance(error.__cause__, psycopg.Error) else None
    return state is None or state.startswith(("08", "57P"))


def infrastructure_wait(error: Exception) -> Wait | None:
    """Return the wait for a fault that is no document's: a wrong setting, a pipeline that is not deployed, no disk."""
    if isinstance(error, ImproperlyConfigured):
        return Wait(seconds=60.0, reason=CONFIGURATION)
    full = isinstance(error.__cause__, psycopg.errors.DiskFull)
    if full or (isinstance(error, OSError) and error.errno in _AWAY):
        return Wait(seconds=15.0, reason=STORAGE_UNAVAILABLE)
    return None


def safe_traceback(error: BaseException) -> str:
    """Return where an error was raised, file by file, without the values that its message may hold."""
    return "".join(traceback.format_tb(error.__traceback__)) + safe_error_name(error)


def error_columns(claim: Claim, failure: Permanent | Retryable) -> dict[str, Any]:
    """Return the two columns of a failed try: for everybody, and for staff."""
    job, shown = claim.job, dict[str, Any](code=failure.code, detail=failure.detail)
    shown |= {"stage": job.stage, "attempt": job.attempts}
    if isinstance(failure, Permanent):
        shown["permanent"] = True  # told apart from a failure that has used up its tries, however few these are
    trace = safe_traceback(failure.__cause__ or failure) if failure.code == BUG else None
    return {"error": Jsonb(shown), "traceback": trace}
