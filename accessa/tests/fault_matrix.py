"""Fault matrix of vendors: cells as words, the state that each word means, and the run of a cell."""

import logging
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from django.db import connection

from documents.parsers import registry
from jobs import failpoints, services, worker
from jobs.claims import Claim
from jobs.models import Event, UploadJob
from testing.fakes.faults import FAULTS, replacement, slow_body, slow_head
from testing.fakes.http_messages import json_response
from testing.fakes.server import Server
from testing.personas import make_parked_jobs_due
from vendors.models import Breaker, RateLimit

CANARY = "deductible-of-POLICY-XJ9-4471"  # is in every file that the tests upload
QUICK, PATIENT = 0.3, 20.0  # seconds for a call: while something hangs, and while all is well


class Outcome(NamedTuple):
    """How one fault ends: the codes of the tries that were charged, of the waits that were not, and the end.

    ``dead`` is the code of the dead letter; without one the job ends as it would have without the fault.
    """

    charged: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    dead: str | None = None


# The rules for all call sites, in the words that the tables use.
OUTCOMES = {
    "done": Outcome(),
    "limited": Outcome(waits=("VENDOR_RATE_LIMITED",)),
    "quota": Outcome(waits=("VENDOR_QUOTA_EXHAUSTED",)),
    "key": Outcome(waits=("VENDOR_REFUSES_KEY",)),
    "fault": Outcome(charged=("VENDOR_UNAVAILABLE",)),
    "silence": Outcome(charged=("VENDOR_UNREACHABLE",)),
    "invalid": Outcome(charged=("VENDOR_ANSWER_INVALID",)),
    "refused": Outcome(dead="VENDOR_REFUSED"),
    # Several calls at once meet the same closed door: enough for the breaker, and no attempt is charged.
    "breaker": Outcome(waits=("VENDOR_AWAY",)),
    # What a call site knows better.
    "file-gone": Outcome(charged=("PARSE_FILE_GONE",)),
    "malformed": Outcome(dead="PARSE_MALFORMED"),
    "timeout": Outcome(dead="PARSE_TIMEOUT"),
    "misconfigured": Outcome(waits=("VENDOR_MISCONFIGURED",)),
    "storage": Outcome(waits=("STORAGE_UNAVAILABLE",)),
    "hash": Outcome(dead="PARSE_HASH_MISMATCH"),
}
# What a wait is for when no fault is injected.
USUAL_WAITS = {"WAITING_FOR_PARSER", "WAITING_FOR_UPLOAD", "WOKEN"}


ECHO = {"error": {"message": f"Bad: {CANARY}", "code": f"Bad: {CANARY}"}, "detail": f"Bad: {CANARY}"}
# Each byte comes in time, the whole does not; and errors that repeat what the tenant wrote.
MORE_KINDS = {
    kind.name: kind
    for kind in (
        replace(slow_body(0.1), name="ten-bytes-a-second"),
        replace(slow_head(0.1), name="head-ten-bytes-a-second"),
        replacement("status-400-echo", json_response(ECHO, 400)),
        replacement("status-500-echo", json_response(ECHO, 500)),
    )
}
ALL_KINDS = FAULTS | MORE_KINDS
SLOW = {"hang", "hang-after-sale", "one-byte-a-second", "ten-bytes-a-second", "head-ten-bytes-a-second"}


def read(table: str) -> dict[tuple[str, str], str]:
    """Return the words of a table by kind and call site; ``-`` is a cell that cannot be."""
    head, *rows = [line.split() for line in table.strip().splitlines()]
    assert all(len(row) == len(head) for row in rows), "a row without a word for each site"
    return {(row[0], site): word for row in rows for site, word in zip(head[1:], row[1:], strict=True) if word != "-"}


def kinds(table: str) -> set[str]:
    return {line.split()[0] for line in table.strip().splitlines()[1:]}


def cells(table: str) -> Iterator[Any]:
    """Yield the parameters ``kind, site, word``. Cells beyond those of ``covering`` are marked ``matrix``."""
    words = read(table)
    quick = covering(list(words))
    for (kind, site), word in words.items():
        marks = [] if (kind, site) in quick else [pytest.mark.matrix]
        yield pytest.param(kind, site, word, id=f"{site}-{kind}", marks=marks)


def covering(pairs: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return few pairs that hold every kind and every site: for each kind the site that has come least so far."""
    uses = Counter({site: 0 for _, site in pairs})
    chosen = set()
    for kind in dict.fromkeys(kind for kind, _ in pairs):
        site = min((site for other, site in pairs if other == kind), key=lambda site: uses[site])
        uses[site] += 1
        chosen.add((kind, site))
    return chosen | {next(pair for pair in pairs if pair[1] == site) for site, count in uses.items() if not count}


class Ran(NamedTuple):
    charged: tuple[str, ...]
    waits: tuple[str, ...]
    dead: str | None

    @property
    def outcome(self) -> Outcome:
        return Outcome(*self)


def at(monkeypatch: pytest.MonkeyPatch, point: str, act: Any) -> None:
    """Do something once, when the pipeline reaches a named point."""
    waiting = [act]

    def reach(reached: str) -> None:
        if reached == point and waiting:
            waiting.pop()()

    monkeypatch.setattr(failpoints, "failpoint", reach)


class Died(BaseException):
    """A worker's death: nothing after it runs."""


def die(claim: Claim, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a try that ends with the worker's death at ``point``, and let the lease run out."""

    def reach(reached: str) -> None:
        if reached == point:
            raise Died

    monkeypatch.setattr(failpoints, "failpoint", reach)
    with pytest.raises(Died):
        worker.run_stage(claim)
    monkeypatch.undo()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE upload_jobs SET lease_until = now() - interval '1 hour' WHERE state = 'working'")
    services.requeue_due_and_expired()


def let_vendors_rest() -> None:
    """Let each vendor be asked again, as if the time that it wanted, or the breaker's, had passed."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE vendor_rate_limits SET paused_until = NULL")
        cursor.execute("UPDATE vendor_breakers SET opened_at = now() - interval '1 hour', probe_until = NULL")


def run(job: UploadJob, after_first: Any = None, tries: int = 8) -> Ran:
    """Let a worker run the job to its end, whatever it has to wait for; ``after_first``: then all is well again."""
    waits = []
    for number in range(tries):
        make_parked_jobs_due()
        let_vendors_rest()
        worker.drain()
        if number == 0 and after_first:
            after_first()
        job.refresh_from_db()
        if job.state in ("done", "deadletter"):
            break
        if job.wait_reason and job.wait_reason not in USUAL_WAITS:
            waits.append(job.wait_reason)
    assert job.state in ("done", "deadletter"), (job.stage, job.state, job.wait_reason, job.last_error)
    dead = (job.last_error or {})["code"] if job.state == "deadletter" else None
    return Ran(charged(job), tuple(waits), dead)


def charged(job: UploadJob) -> tuple[str, ...]:
    """Return the codes of the tries that cost the job an attempt."""
    retries = Event.objects.filter(job_id=job.pk, code="RETRY_SCHEDULED").order_by("ts")
    return tuple(payload["code"] for payload in retries.values_list("payload", flat=True))


def inject_fault(server: Server, route: str, kind: str, times: int = 1) -> None:
    server.inject_fault(route, ALL_KINDS[kind], times)


def consumed(server: Server) -> bool:
    """Tell whether all that was to go wrong has gone wrong."""
    return not server._faults._queue


def listen(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("django.db.backends").setLevel(logging.INFO)  # DEBUG repeats every row, on DEBUG servers only
    caplog.set_level(logging.DEBUG)


def leaks(caplog: pytest.LogCaptureFixture, *secrets: str) -> list[str]:
    """Return which secrets, and whether any of the tenant's text or paths, were written where others read."""
    ours = [record for record in caplog.records if not record.name.startswith(("urllib3", "botocore"))]
    formatter = logging.Formatter()
    logs = "\n".join(formatter.format(record) for record in ours)
    events = list(Event.objects.values_list("code", "payload"))
    jobs = list(UploadJob.objects.values_list("last_error", "traceback", "wait_reason", "payload"))
    rows = [*Breaker.objects.values_list(), *RateLimit.objects.values_list()]
    written = f"{logs} {events} {jobs} {rows}"
    shown = written.replace("storage://raw/", "") if "source_path" in str(jobs) else written
    return [secret for secret in (CANARY, *secrets) if secret in shown]


def forget_parser() -> None:
    """Let the parser be made anew, by the settings of now."""
    made: Any = registry.vendor_client()
    if "_client" in vars(made):
        made._client.close()
    registry.vendor_client.cache_clear()


class Stopwatch:
    """How long something took."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began
