"""Client of a fork server process: started at the first request, restarted if it died, ended with the worker."""

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
from typing import IO, Any, cast

from documents.parsers.failures import parse_failure
from documents.parsers.sandbox import framing

MEMORY_MB = int(os.environ.get("PDF_CHILD_MEMORY_MB", "768"))  # stopped every bomb, passed every real file (FACTS)
CPU_SECONDS = int(os.environ.get("PDF_CPU_SECONDS", "25"))  # no file over 30 s without a typed outcome (RELIABILITY)
MAX_RESPONSE_BYTES = 32 << 20  # 3,000 dense pages are about 15 MB of markdown; the worker has to hold this much
GRACE_SECONDS = 5.0  # the fork server keeps the deadline; this much later it must be stuck
ROOT = Path(__file__).resolve().parents[3]
# No other variable is passed: the child parses hostile bytes and has no use for the worker's secrets.
PASSED_ENV = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LANG", "SYSTEMROOT")
# Address space is limited, and malloc arenas reserve it.
LOW_MEMORY_ENV = {"MALLOC_ARENA_MAX": "1", "RAYON_NUM_THREADS": "1"}


@dataclass
class SandboxClient:
    """One per process. A worker parses one document at a time; other threads wait for the lock."""

    module: str = "documents.parsers.pdf_fork_server"
    memory_mb: int = MEMORY_MB
    environment: Mapping[str, str] = field(default_factory=lambda: LOW_MEMORY_ENV)
    grace_seconds: float = GRACE_SECONDS
    max_response_bytes: int = MAX_RESPONSE_BYTES
    _process: subprocess.Popen[bytes] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def request(
        self, request: dict[str, Any], *, wall_seconds: float, after_crash: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the child's response. Raises only ``Permanent`` or ``Retryable``, whatever the document does to it.

        ``after_crash``: what another child is asked, in the time that is left, after a crash of the first.
        """
        limits = {"memory_mb": self.memory_mb, "cpu_seconds": CPU_SECONDS, "answer_bytes": self.max_response_bytes}
        until = time.monotonic() + wall_seconds
        with self._lock:
            outcome, content = self._exchange({**limits, **request}, until)
            if outcome == "crashed" and after_crash is not None:
                outcome, content = self._exchange({**limits, **request, **after_crash}, until)
        if outcome != "answered":
            raise parse_failure(outcome)
        response: dict[str, Any] = json.loads(content)
        if "refused" in response:
            raise parse_failure(response["refused"])
        return response

    def close(self) -> None:
        """Kill the fork server and its child."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            _close_pipes(process)

    def reset_after_fork(self) -> None:
        """Drop the parent's fork server in a forked worker, which must neither talk to it nor keep it alive."""
        process, self._process, self._lock = self._process, None, threading.Lock()
        if process is not None:
            _close_pipes(process)
            process.returncode = 0  # not ours to wait for; keeps Popen from warning about it

    def _exchange(self, request: dict[str, Any], until: float) -> tuple[str, bytes]:
        """Return how the child ended, and its response. An interrupted exchange ends the fork server."""
        message = json.dumps({**request, "wall_seconds": until - time.monotonic()}).encode()
        until += self.grace_seconds
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd=ROOT,
                env={name: os.environ[name] for name in PASSED_ENV if name in os.environ} | dict(self.environment),
                start_new_session=True,  # a signal to the worker's group must not end a parse that is nearly done
            )
        try:
            pipes = cast("list[IO[bytes]]", [self._process.stdin, self._process.stdout])
            requests, replies = (pipe.fileno() for pipe in pipes)
            framing.send(requests, message)
            outcome = framing.receive(replies, limit=64, until=until)
            return outcome.decode(), framing.receive(replies, limit=self.max_response_bytes, until=until)
        except TimeoutError:
            self.close()
            return "deadline", b""
        except (EOFError, OSError, ValueError):
            self.close()
            return "killed", b""
        except BaseException:  # the rest of this response must not be read as the next document's
            self.close()
            raise


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def register_cleanup(client: SandboxClient) -> SandboxClient:
    """Close the client when this process ends, and reset it in forks; return it."""
    atexit.register(client.close)
    os.register_at_fork(after_in_child=client.reset_after_fork)
    return client


pdf_sandbox = register_cleanup(SandboxClient())
