"""Fixtures of doctor's tests: findings as tuples, another deployment, spoiled responses."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from email.utils import formatdate
from typing import Any

from django.core import signing
from django.db import connection

from accessa.doctor.findings import Level
from accessa.doctor.registry import CHECKS
from accessa.doctor.runner import run_checks
from accounts.errors import ApiError
from documents.storage.buckets import SIGNING_SALT
from testing.fakes.faults import Fault
from testing.fakes.http_messages import Request, Response, json_response
from testing.fakes.server import Server
from webhooks import verifiers
from webhooks.tests.signers import FOREIGN

Findings = list[tuple[Level, str, str]]


def run_findings(*names: str) -> Findings:
    """Run the named checks; return level, message and remedy of each finding."""
    assert set(names) <= {check.name for check in CHECKS}
    outcomes = run_checks(CHECKS, only=names)
    return [(each.level, each.message, each.remedy) for outcome in outcomes for each in outcome.findings]


def reports(name: str, message: str, remedy: str, *, level: Level = Level.ERROR) -> bool:
    """Run a check; tell whether it has such a finding."""
    return has_finding(run_findings(name), message, remedy, level=level)


def has_finding(findings: Findings, message: str, remedy: str, *, level: Level = Level.ERROR) -> bool:
    print(*findings, sep="\n")  # shown when the test fails
    return any(each[0] is level and message in each[1] and remedy in each[2] for each in findings)


@contextmanager
def temporary_sql(do: str, undo: str) -> Iterator[None]:
    """Change the database inside the block."""
    with connection.cursor() as cursor:
        cursor.execute(do)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(undo)


class OtherDeployment(Server):
    """Another deployment: with its own secrets, or trusting any signature, or with a wrong clock."""

    name = "other deployment"

    def __init__(self, *, trusting: bool = False, clock: float = 0.0) -> None:
        super().__init__()
        self.trusting, self.clock = trusting, clock

    def respond(self, request: Request) -> Response:
        answer = self._route(request)
        date = {"Date": formatdate(time.time() + self.clock, usegmt=True)}
        return replace(answer, headers={**answer.headers, **date})

    def _route(self, request: Request) -> Response:
        if request.path.startswith("/storage/"):
            return self._stored(request)
        if request.path != "/webhooks/llamaparse":
            return json_response({"status": "ok"})
        try:
            if not self.trusting:
                verifier = verifiers.select_verifier(dict(request.headers.items()))
                headers = {name.lower(): value for name, value in request.headers.items()}
                verifier.verify(headers, request.body, secrets=[FOREIGN], now=time.time())
        except ApiError as refused:
            return json_response(refused.body, refused.status)
        return json_response({"code": "CALLBACK_UNKNOWN_JOB"}, 404)

    def _stored(self, request: Request) -> Response:
        try:
            signing.loads(request.parameter("token") or "", key="another deployment's own key", salt=SIGNING_SALT)
        except signing.BadSignature:
            return json_response({"code": "URL_NOT_VALID"}, 403)
        return json_response({"code": "NOT_FOUND"}, 404)

    def error_response(self, status: int, code: str | None = None) -> Response:
        return json_response({"code": code}, status)


def spoil_json(spoil: Callable[[dict[str, Any]], None]) -> Any:
    """Return a fault that changes the JSON object of a response in place."""

    def change(_faults: object, answer: Response) -> Response:
        body = json.loads(answer.body)
        spoil(body)
        return Response(answer.status, json.dumps(body).encode(), answer.headers)

    return Fault("spoiled", sold=True, change=change)
