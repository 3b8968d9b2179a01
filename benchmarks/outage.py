"""Recovery from a ten-minute outage of both vendors with 200 queued documents: none lost, all done soon afterwards."""

import json
import sys
import time
import urllib.request
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection

from benchmarks import job_timings, stored_pdfs, subprocesses
from benchmarks.report import Result, print_progress
from jobs.models import Event, UploadJob
from vendors.models import Purchase

SUMMARY = __doc__
GOAL = 120.0
TIMEOUT_SECONDS = 600.0
START = [sys.executable, "-m", "testing.fakes", "--llamaparse-port", "0", "--openai-port", "0"]
OUTAGE = {"faults": [{"route": "*", "fault": "status-503", "times": 1_000_000}]}
RECOVERY = {"clear_faults": True}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long the vendors are away")


def measure(options: Namespace) -> Result:
    documents, seconds = (2, 1.0) if options.quick else (options.documents, options.seconds)
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE vendor_rate_limits, vendor_breakers, purchases")
    with running_fakes() as vendors:
        _send_control(vendors, OUTAGE)
        stored_pdfs.create_jobs(stored_pdfs.store_pdfs([stored_pdfs.SAMPLES / "amendment.pdf"] * documents))
        with subprocesses.running_cluster(**_environment(vendors, quick=options.quick)):
            subprocesses.wait_until(lambda: _count_requests(vendors) > 0, seconds=60)
            time.sleep(seconds)
            print_progress(f"{_count_requests(vendors)} calls met the outage; the vendors return")
            _send_control(vendors, RECOVERY)
            began = time.monotonic()
            subprocesses.wait_until(job_timings.jobs_have_ended, seconds=TIMEOUT_SECONDS)
            took = time.monotonic() - began
        books = _read_ledger(vendors["llamaparse"])["ledger"]
    dead = UploadJob.objects.filter(state="deadletter").count()
    charged = Event.objects.filter(type="retry").count()
    return Result(
        name="outage",
        value=took,
        unit="s from the vendors' return to the last document",
        against=f"{GOAL:g} s",
        ratio=took / GOAL,
        goal=1.0,
        ok=not dead and took <= GOAL and not books["repeated"] and books["sold"] == documents,
        details={
            "documents": documents,
            "seconds_away": seconds,
            "dead_letters": dead,
            "attempts_charged": charged,
            "parses_sold": books["sold"],
            "parses_sold_twice": books["repeated"],
            "purchases_unsettled": Purchase.objects.filter(state="reserved").count(),
        },
    )


@contextmanager
def running_fakes() -> Iterator[dict[str, Any]]:
    state = Path(settings.VAR).parent / "outage.json"
    state.unlink(missing_ok=True)
    with subprocesses.running_program([*START, "--state", str(state)]):
        subprocesses.wait_until(state.exists, seconds=30, pause=0.05)
        yield json.loads(state.read_text())


def _environment(vendors: dict[str, Any], *, quick: bool) -> dict[str, str]:
    llamaparse, openai = vendors["llamaparse"], vendors["openai"]
    pause = {"VENDOR_BREAKER_SECONDS": "1"} if quick else {}
    return pause | {
        "LLAMAPARSE_API_KEY": llamaparse["key"],
        "LLAMAPARSE_BASE_URL": llamaparse["url"],
        "OPENAI_API_KEY": openai["key"],
        "OPENAI_BASE_URL": openai["url"],
    }


def _send_control(vendors: dict[str, Any], order: dict[str, Any]) -> None:
    for name in ("llamaparse", "openai"):
        _call_control(vendors[name], json.dumps(order).encode())


def _read_ledger(vendor: dict[str, Any]) -> dict[str, Any]:
    return _call_control(vendor, None)


def _count_requests(vendors: dict[str, Any]) -> int:
    return sum(int(_read_ledger(vendors[name])["requests"]) for name in ("llamaparse", "openai"))


def _call_control(vendor: dict[str, Any], body: bytes | None) -> dict[str, Any]:
    with urllib.request.urlopen(vendor["control"], body, timeout=10) as answer:
        fields: dict[str, Any] = json.loads(answer.read())
    return fields
