"""Hooks on SQL statements, for races whose order the test decides."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection


@contextmanager
def after_statement(sql: str, act: Callable[[], object]) -> Iterator[None]:
    """Let ``act`` happen right after the first statement that begins so."""
    waiting = [act]

    def executed(execute: Any, statement: str, params: Any, many: bool, context: Any) -> Any:
        outcome = execute(statement, params, many, context)
        if waiting and statement.startswith(sql):
            waiting.pop()()
        return outcome

    with connection.execute_wrapper(executed):
        yield
    assert not waiting, "It never came to that."
