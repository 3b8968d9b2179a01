"""Errors of the infrastructure rather than of a document: database, disk, configuration."""

import errno

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db.utils import InterfaceError, OperationalError

from jobs.error_codes import CONFIGURATION, STORAGE_UNAVAILABLE
from jobs.outcomes import Wait

# A disk that is full or unavailable: every document would fail alike, so no job is charged an attempt.
DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT}


def is_database_unavailable(error: Exception) -> bool:
    """Tell whether the database cannot be reached, rather than rejected a statement (a deadlock, a timeout)."""
    if not isinstance(error, (OperationalError, InterfaceError)):
        return False
    state = error.__cause__.sqlstate if isinstance(error.__cause__, psycopg.Error) else None
    return state is None or state.startswith(("08", "57P"))


def infrastructure_wait(error: Exception) -> Wait | None:
    """Return the wait for an error that no document causes: a wrong setting, an undeployed pipeline, no disk."""
    if isinstance(error, ImproperlyConfigured):
        return Wait(seconds=60.0, reason=CONFIGURATION)
    if isinstance(error.__cause__, psycopg.errors.DiskFull) or (
        isinstance(error, OSError) and error.errno in DISK_ERRORS
    ):
        return Wait(seconds=15.0, reason=STORAGE_UNAVAILABLE)
    return None
