"""The worker's side of the zygote: started at the first document, started anew if it died, gone when the worker is."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from documents.parsers.errors import parse_failure
from documents.parsers.sandbox import framing

MEMORY_MB = int(os.environ.get("PDF_CHILD_MEMORY_MB", "768"))  # stopped every bomb, passed every real file (FACTS)
CPU_SECONDS = int(os.environ.get("PDF_CPU_SECONDS", "25"))  # no file over 30 s without a typed outcome (RELIABILITY)
MAX_RESPONSE_BYTES = 32 << 20  # 3,000 dense pages are about 15 MB of markdown; the worker has to hold this much
GRACE_SECONDS = 5.0  # the zygote itself keeps the deadline; past this much more it must be stuck
ROOT = Path(__file__).resolve().parents[3]
# Everything else stays behind: the child parses hostile bytes and has no use for the worker's secrets.
PASSED_ENV = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LANG", "SYSTEMROOT")
LOW_MEMORY_ENV = {
    "MALLOC_ARENA_MAX": "1",
    "RAYON_NUM_THREADS": "1",
}  # address space is what is capped, and arenas reserve it


@dataclass
class SandboxClient:
    """One per process. A worker parses one document at a time, so callers in other threads wait their turn."""

    module: str = "documents.parsers.sandbox.pdf_child"
    memory_mb: int = MEMORY_MB
    environment: Mapping[str, str] = field(default_factory=lambda: LOW_MEMORY_ENV)
    grace_seconds: float = GRACE_SECONDS
    _process: subprocess.Popen[bytes] | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def request(self, request: dict[str, Any], *, wall_seconds: float) -> dict[str, Any]:
        """Raises ``Permanent`` or ``Retryable``, and nothing else, whatever the document does to the child."""
        limits = {"memory_mb": self.memory_mb, "cpu_seconds": CPU_SECONDS, "answer_bytes": MAX_RESPONSE_BYTES}
        message = json.dumps({**limits, **request, "wall_seconds": wall_seconds}).encode()
        with self._turn:
            ended, answer = self._converse(message, until=time.monotonic() + wall_seconds + self.grace_seconds)
        if ended != "answered":
            raise parse_failure(ended)
        told: dict[str, Any] = json.loads(answer)
        if "refused" in told:
            raise parse_failure(told["refused"])
        return told

    def close(self) -> None:
        """The zygote and whatever it is running die at once."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            _close_pipes(process)

    def reset_after_fork(self) -> None:
        """In a forked copy of the worker: it must neither speak to the other's zygote nor keep it alive."""
        process, self._process, self._turn = self._process, None, threading.Lock()
        if process is not None:
            _close_pipes(process)
            process.returncode = 0  # not ours to wait for; keeps Popen from warning about it

    def _converse(self, message: bytes, *, until: float) -> tuple[str, bytes]:
        """How the child ended, and its answer. A conversation that breaks off leaves no zygote behind."""
        process = self._running()
        try:
            framing.send(_pipe(process.stdin), message)
            ended = framing.receive(_pipe(process.stdout), limit=64, until=until)
            return ended.decode(), framing.receive(_pipe(process.stdout), limit=MAX_RESPONSE_BYTES, until=until)
        except TimeoutError:
            self.close()
            return "deadline", b""
        except (EOFError, OSError, ValueError):
            self.close()
            return "crashed", b""
        except BaseException:  # half a conversation must not be the next document's answer
            self.close()
            raise

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = _start(self.module, self.environment)
        return self._process


def _start(module: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """In a session of its own, so that a signal sent to the worker's group spares a parse that is nearly done."""
    return subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd=ROOT,
        env={name: os.environ[name] for name in PASSED_ENV if name in os.environ} | dict(environment),
        start_new_session=True,
    )


def _pipe(end: IO[bytes] | None) -> int:
    return end.fileno() if end is not None else -1


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def register_cleanup(zygote: SandboxClient) -> SandboxClient:
    """The same, closed when this process ends and forgotten in its forks."""
    atexit.register(zygote.close)
    os.register_at_fork(after_in_child=zygote.reset_after_fork)
    return zygote


pdf_sandbox = register_cleanup(SandboxClient())
