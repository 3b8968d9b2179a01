"""Fork server `python -m testing.fork_server`: a loaded Django that forks a management command per line of stdin.

A process that is killed again and again need not load everything each time: that takes seconds.
"""

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Self

import django
import psutil
from django.core.management import call_command

ROOT = Path(__file__).resolve().parents[1]


class ForkServer:
    """Processes of commands, each a child of one that has loaded everything and has no connection open."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "testing.fork_server"],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def fork(self, *command: str) -> psutil.Process:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(" ".join(command) + "\n")
        self._process.stdin.flush()
        return psutil.Process(int(self._process.stdout.readline()))


def _serve() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries them
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(line.split())
        print(child, flush=True)


def _run(command: list[str]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what the fork_server says there is for whoever asked
    code = 1
    try:
        call_command(*command)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "accessa.settings")
    django.setup()
    for loaded_late in ("accessa.pipelines", "statutes.consumer.consumer", "vendors.aws_client"):
        import_module(loaded_late)
    _serve()
