"""Runbook: the error code of a failed or waiting job, with its meaning and remedy for support."""

from accounts.error_codes import UNDECLARED, Context, ErrorCode, find_error_code
from statutes.intake import PIPELINE


def find_failure(code: str | None, pipeline: str = "") -> ErrorCode:
    """Return a dead letter's code. The same code may have another remedy for a statute than for a tenant's document."""
    contexts = (Context.FAILURE, Context.STATUTE_FAILURE)
    return find_error_code(code, *(contexts[::-1] if pipeline == PIPELINE else contexts)) or UNDECLARED


def find_wait(reason: str | None) -> ErrorCode | None:
    return find_error_code(reason, Context.WAIT, Context.STATUTE_WAIT)
