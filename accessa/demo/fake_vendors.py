"""The vendor path without vendors: their stand-ins as a process, and what it is that they sold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

from accessa.demo.client import ApiClient
from accessa.server.programs import REPOSITORY, Address

VENDORS = ("llamaparse", "openai", "s3")
START = [sys.executable, "-m", "testing.fakes"]
STOP_SECONDS = 10.0
COLUMNS = ("document", "pages", "parse", "tokens", "embed", "both", "predicted")


@contextmanager
def standing_in(address: Address) -> Iterator[dict[str, Any]]:
    """Run LlamaParse, OpenAI and S3 on this machine, and point what is started inside the block at them by settings."""
    with started(*VENDORS, "--s3-strict") as found:  # it looks at signatures
        os.environ.update(_settings(found, address))
        yield found


@contextmanager
def started(*wanted: str) -> Iterator[dict[str, Any]]:
    """Run stand-ins as a process of their own until the end of the block; yield what each says of itself.

    ``wanted`` are vendors' names, and options of `python -m testing.fakes` as they are.
    """
    words = [word for name in wanted for word in ([name] if name.startswith("--") else [f"--{name}-port", "0"])]
    process = subprocess.Popen(
        [*START, *words],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal's Ctrl-C reaches us alone: who still asks it must stop first
    )
    try:
        said = process.stdout.readline() if process.stdout else ""
        if not said:
            raise RuntimeError("The vendors' stand-ins did not start.")
        found: dict[str, Any] = json.loads(said)
        yield found
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)
        if process.stdout:
            process.stdout.close()


def _settings(found: dict[str, Any], address: Address) -> dict[str, str]:
    llamaparse, openai, s3 = (found[name] for name in VENDORS)
    return {
        "LLAMAPARSE_API_KEY": llamaparse["key"],
        "LLAMAPARSE_BASE_URL": llamaparse["url"],
        "LLAMAPARSE_CALLBACK_URL": f"{address.url}/webhooks/llamaparse",
        "OPENAI_API_KEY": openai["key"],
        "OPENAI_BASE_URL": openai["url"],
        "S3_ENDPOINT_URL": s3["url"],
        "S3_ACCESS_KEY_ID": s3["access_key"],
        "S3_SECRET_ACCESS_KEY": s3["secret_key"],
        "S3_REGION": s3["region"],
    }


def print_bill(console: Console, visitor: ApiClient, found: dict[str, Any]) -> None:
    """Print what each document cost by our books, and what the vendors sold by theirs."""
    table = Table(*COLUMNS, title="The bill, in cents")
    for row in visitor.bill():
        table.add_row(*row)
    console.print(table)
    parses, texts = books(found["llamaparse"]), books(found["openai"])
    calls = parses["callbacks"]
    console.print(f"LlamaParse sold {parses['ledger']['sold']} parses, {parses['ledger']['repeated']} of them twice;")
    console.print(f"  {calls['accepted']} of its {calls['attempts']} signed callbacks were accepted.")
    sold = texts["ledger"]
    tokens = sold.get("tokens", 0)  # none were sold
    console.print(f"OpenAI sold {sold['sold']} vectors ({tokens} tokens), {sold['repeated']} of them twice.")


def books(vendor: dict[str, Any]) -> dict[str, Any]:
    """Return what a stand-in says it has sold."""
    with urllib.request.urlopen(vendor["control"], timeout=STOP_SECONDS) as answer:  # noqa: S310
        told: dict[str, Any] = json.loads(answer.read())
    return told
