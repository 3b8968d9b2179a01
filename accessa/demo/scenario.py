"""Scenario: a part of the demo. Demo: the console, the API client and the waiting that all scenarios share."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from rich.console import Console

from accessa.demo.client import ApiClient


class DemoFailed(CommandError):
    """The demo did not end as promised. The message says where."""


@dataclass
class Demo:
    """``tick`` keeps the programs running while a scenario waits; ``deadline`` is a time of the monotonic clock."""

    console: Console
    client: ApiClient
    tick: Callable[[], object]
    deadline: float
    failures: list[str] = field(default_factory=list)  # reported when all scenarios have run

    def wait_while(self, condition: Callable[[], object], failure: str) -> None:
        """Wait until ``condition`` is false. Raises ``DemoFailed``."""
        while condition():
            self.tick()
            if time.monotonic() > self.deadline:
                raise DemoFailed(failure)
            time.sleep(0.1)

    def print_question(self, question: str) -> None:
        self.console.print(f"\n? {question}", style="bold", markup=False)

    def print_hit(self, citation: str, text: str) -> None:
        self.console.print(f"  {citation}", style="cyan", markup=False)
        self.console.print(f"    {' '.join(text.split())[:240]} …", markup=False, highlight=False)


class Scenario:
    """The methods are called in this order."""

    def environment(self) -> AbstractContextManager[None]:
        """Return the context in which database, API and workers run: fakes and settings."""
        return nullcontext()

    def check_database(self) -> None:
        """Raise ``DemoFailed`` where the database is not fit for the scenario."""

    def run(self, demo: Demo) -> None:
        raise NotImplementedError


@contextmanager
def use_variables(variables: Mapping[str, str], *, unset: Iterable[str] = ()) -> Iterator[None]:
    """Set environment variables for the programs that are started inside the block."""
    names = {*variables, *unset}
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


@contextmanager
def use_settings(**changes: Any) -> Iterator[None]:
    """Change settings of this process inside the block."""
    before = {name: getattr(settings, name) for name in changes}
    for name, changed in changes.items():
        setattr(settings, name, changed)
    try:
        yield
    finally:
        for name, original in before.items():
            setattr(settings, name, original)
