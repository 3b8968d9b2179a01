"""Subprocesses of the benchmarks: `manage.py qcluster` and other programs of the repository."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
STOP_SECONDS = 40  # the cluster promises 30


@contextmanager
def running_cluster(**environment: str) -> Iterator[psutil.Process]:
    """Run a cluster until the end of the block; its log is in the scratch folder."""
    with running_program([sys.executable, "manage.py", "qcluster"], **environment) as process:
        yield process


@contextmanager
def running_program(command: list[str], **environment: str) -> Iterator[psutil.Process]:
    """Run a program of the repository; SIGTERM stops it at the end of the block."""
    log = Path(os.environ["ACCESSA_VAR"]).parent / "programs.log"
    with log.open("ab") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=os.environ | environment, stdout=output, stderr=output)
    try:
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(done: Callable[[], bool], *, seconds: float, pause: float = 0.2) -> None:
    """Wait until something is so. Raises ``TimeoutError``."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not done within {seconds:.0f} s")
        time.sleep(pause)
