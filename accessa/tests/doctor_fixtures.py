"""A whole deployment that is well, for doctor's tests: the API over HTTP, a cluster's row, and stand-ins of vendors."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from email.utils import formatdate
from typing import Any

from django.core import signing
from django.db import connection

from accessa.doctor.registry import CHECKS
from accessa.doctor.runner import Level, examine
from accounts.errors import ApiError
from documents.storage import SIGNING_SALT
from testing.fakes.faults import Kind
from testing.fakes.http_messages import Answer, Request, as_json
from testing.fakes.server import Server
from webhooks import verifiers
from webhooks.tests.senders import FOREIGN

Told = list[tuple[Level, str, str]]


def told(*names: str) -> Told:
    """Run the checks called so, and return level, sentence and remedy of all that they say."""
    assert set(names) <= {check.name for check in CHECKS}
    verdicts = list(examine(CHECKS, only=names))
    return [(each.level, each.says, each.remedy) for verdict in verdicts for each in verdict.findings]


def found(name: str, says: str, remedy: str, *, level: Level = Level.ERROR) -> bool:
    """Tell whether a check says so, with that remedy; print all that it said, for whoever reads a failure."""
    return said(told(name), says, remedy, level=level)


def said(everything: Told, says: str, remedy: str, *, level: Level = Level.ERROR) -> bool:
    print(*everything, sep="\n")
    return any(each[0] is level and says in each[1] and remedy in each[2] for each in everything)


@contextmanager
def done(do: str, undo: str) -> Iterator[None]:
    """Do something to the database for a while."""
    with connection.cursor() as cursor:
        cursor.execute(do)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(undo)


class Elsewhere(Server):
    """Another deployment: it has secrets of its own, or trusts everybody, or its clock is wrong."""

    name = "elsewhere"

    def __init__(self, *, trusting: bool = False, clock: float = 0.0) -> None:
        super().__init__()
        self.trusting, self.clock = trusting, clock

    def answer(self, request: Request) -> Answer:
        answer = self._said(request)
        date = {"Date": formatdate(time.time() + self.clock, usegmt=True)}
        return replace(answer, headers={**answer.headers, **date})

    def _said(self, request: Request) -> Answer:
        if request.path.startswith("/storage/"):
            return self._stored(request)
        if request.path != "/webhooks/llamaparse":
            return as_json({"status": "ok"})
        try:
            if not self.trusting:
                verifier = verifiers.select_verifier(dict(request.headers.items()))
                headers = {name.lower(): value for name, value in request.headers.items()}
                verifier.verify(headers, request.body, secrets=[FOREIGN], now=time.time())
        except ApiError as refused:
            return as_json(refused.body, refused.status)
        return as_json({"code": "CALLBACK_UNKNOWN_JOB"}, 404)

    def _stored(self, request: Request) -> Answer:
        try:
            signing.loads(request.parameter("token") or "", key="another deployment's own key", salt=SIGNING_SALT)
        except signing.BadSignature:
            return as_json({"code": "URL_NOT_VALID"}, 403)
        return as_json({"code": "NOT_FOUND"}, 404)

    def error(self, status: int, code: str | None = None) -> Answer:
        return as_json({"code": code}, status)


def spoiled(spoil: Callable[[dict[str, Any]], None]) -> Any:
    """A way to misbehave: spoil the JSON object of an answer, in place."""

    def change(_faults: object, answer: Answer) -> Answer:
        body = json.loads(answer.body)
        spoil(body)
        return Answer(answer.status, json.dumps(body).encode(), answer.headers)

    return Kind("spoiled", sold=True, change=change)
