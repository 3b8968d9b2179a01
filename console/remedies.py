"""Remedies of error codes: of failed jobs, by their pipeline, and of waits."""

from accounts.common_error_codes import UNDECLARED
from accounts.errors import Context, ErrorCode, find_error_code
from statutes.intake import PIPELINE


def find_failure(code: str | None, pipeline: str = "") -> ErrorCode:
    """Return a dead letter's code. The same code may have another remedy for a statute than for a tenant's document."""
    contexts = (Context.FAILURE, Context.STATUTE_FAILURE)
    return find_error_code(code, *(contexts[::-1] if pipeline == PIPELINE else contexts)) or UNDECLARED


def find_wait(reason: str | None) -> ErrorCode | None:
    return find_error_code(reason, Context.WAIT, Context.STATUTE_WAIT)
