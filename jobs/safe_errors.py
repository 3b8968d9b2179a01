"""Errors as data: names and tracebacks without values."""

import traceback

import psycopg


def safe_error_name(error: BaseException) -> str:
    """Return the class and SQLSTATE of an error: a database's DETAIL and many messages carry tenant text."""
    cause = error.__cause__ if isinstance(error.__cause__, psycopg.Error) else error
    if isinstance(cause, psycopg.Error) and cause.diag.sqlstate:
        constraint = f" ({cause.diag.constraint_name})" if cause.diag.constraint_name else ""
        return f"{type(cause).__name__} {cause.diag.sqlstate}{constraint}"
    return type(error).__name__


def safe_traceback(error: BaseException) -> str:
    """Return the traceback of an error without the values that its message may hold."""
    return "".join(traceback.format_tb(error.__traceback__)) + safe_error_name(error)
