"""Both vendors away for ten minutes with 200 documents queued: none is lost, all are done soon after they return."""

from __future__ import annotations

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

from benchmarks import cluster, corpus
from benchmarks.report import Result, say
from jobs.models import Event, UploadJob
from vendors.models import Purchase

SUMMARY = __doc__
GOAL = 120.0
LONGEST = 600.0
START = [sys.executable, "-m", "testing.fakes", "--llamaparse-port", "0", "--openai-port", "0"]
AWAY = {"misbehave": [{"route": "*", "kind": "status-503", "times": 1_000_000}]}
BACK = {"behave": True}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long the vendors are away")


def measure(options: Namespace) -> Result:
    documents, seconds = (5, 5.0) if options.quick else (options.documents, options.seconds)
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE vendor_rate_limits, vendor_breakers, purchases")
    with standing_in() as vendors:
        _tell(vendors, AWAY)
        corpus.queue(corpus.store([corpus.SAMPLES / "amendment.pdf"] * documents))
        with cluster.running(**_environment(vendors, quick=options.quick)):
            cluster.until(lambda: _faults(vendors) > 0, seconds=60)
            time.sleep(seconds)
            say(f"{_faults(vendors)} calls met the outage; the vendors return")
            _tell(vendors, BACK)
            began = time.monotonic()
            cluster.until(corpus.ended, seconds=LONGEST)
            took = time.monotonic() - began
        books = _books(vendors["llamaparse"])["ledger"]
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
def standing_in() -> Iterator[dict[str, Any]]:
    state = Path(settings.VAR).parent / "outage.json"
    state.unlink(missing_ok=True)
    with cluster.started([*START, "--state", str(state)]):
        cluster.until(state.exists, seconds=30, pause=0.05)
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


def _tell(vendors: dict[str, Any], order: dict[str, Any]) -> None:
    for name in ("llamaparse", "openai"):
        _ask(vendors[name], json.dumps(order).encode())


def _books(vendor: dict[str, Any]) -> dict[str, Any]:
    return _ask(vendor, None)


def _faults(vendors: dict[str, Any]) -> int:
    return sum(int(_books(vendors[name])["requests"]) for name in ("llamaparse", "openai"))


def _ask(vendor: dict[str, Any], body: bytes | None) -> dict[str, Any]:
    with urllib.request.urlopen(vendor["control"], body, timeout=10) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found
