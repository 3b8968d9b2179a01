"""Process of the demo's fakes (`python -m testing.fakes`): started, asked for its counters, named in settings."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from accessa.server.address import Address
from accessa.server.programs import REPOSITORY

STOP_SECONDS = 10.0

Fakes = dict[str, Any]  # by name: what `python -m testing.fakes` prints of each


@contextmanager
def run_fakes(*names: str, options: tuple[str, ...] = ()) -> Iterator[Fakes]:
    """Run the named fakes as one process inside the block. ``options`` are those of `python -m testing.fakes`."""
    ports = [word for name in names for word in (f"--{name}-port", "0")]
    process = subprocess.Popen(
        [sys.executable, "-m", "testing.fakes", *ports, *options],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal's Ctrl-C reaches us alone: the clients must stop first
    )
    try:
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            raise RuntimeError("The fake vendors did not start.")
        fakes: Fakes = json.loads(line)
        yield fakes
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)
        if process.stdout:
            process.stdout.close()


def fetch_counters(fake: dict[str, Any]) -> dict[str, Any]:
    """Return what a fake has sold, in its ``ledger``, and its other counters."""
    counters: dict[str, Any] = httpx.get(fake["control"], timeout=STOP_SECONDS).raise_for_status().json()
    return counters


def vendor_variables(fakes: Fakes, address: Address) -> dict[str, str]:
    llamaparse, openai, s3 = fakes["llamaparse"], fakes["openai"], fakes["s3"]
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
