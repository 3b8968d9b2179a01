"""Tests of the fakes as a separate process with a /control endpoint."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from openai import InternalServerError, OpenAI

ROOT = Path(__file__).resolve().parents[2]
START = [sys.executable, "-m", "testing.fakes", "--openai-port", "0", "--llamaparse-port", "0"]


@contextmanager
def running(*more: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    process = subprocess.Popen([*START, *more], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_another_process_reads_the_ledger_and_injects_faults(tmp_path: Path) -> None:
    with running("--state", str(tmp_path / "state"), "--openai-ledger", str(tmp_path / "sold")) as (process, servers):
        vendor = servers["openai"]
        order = {"set": {"delay": 0.01}, "faults": [{"route": "POST *", "fault": "status-500", "sold": True}]}
        requests.post(vendor["control"], json=order, timeout=5).raise_for_status()
        with OpenAI(api_key=vendor["key"], base_url=vendor["url"], max_retries=0) as client:
            with pytest.raises(InternalServerError):
                client.embeddings.create(input="copay", model="text-embedding-3-small")
            client.embeddings.create(input="copay", model="text-embedding-3-small")
        ledger = requests.get(f"{vendor['control']}?items=1", timeout=5).json()["ledger"]

        assert (ledger["sold"], ledger["distinct"], ledger["repeated"], ledger["tokens"]) == (2, 1, 1, 4)
        assert (tmp_path / "sold").read_text().split() == list(ledger["items"]) * 2
        assert json.loads((tmp_path / "state").read_text()) == servers
        assert requests.post(vendor["control"], json={"set": {"nonsense": 1}}, timeout=5).status_code == 400

        process.terminate()
        assert process.wait(5) == 0


@pytest.mark.slow
def test_it_ends_when_its_parent_is_killed() -> None:
    starter = f"import subprocess, time; subprocess.Popen({START!r}); time.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", starter], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    orphan = json.loads(parent.stdout.readline())["pid"]

    parent.kill()
    parent.wait()
    parent.stdout.close()

    assert _has_ended(orphan)


def _has_ended(pid: int) -> bool:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    return False
