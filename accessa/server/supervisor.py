"""Process supervisor: starts programs, restarts them with backoff, stops them together."""

import ctypes
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here: between fork and exec nothing may be

STOP_SECONDS = 30.0
FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0
SETTLED_SECONDS = 10.0  # a process that ran this long did not fail at its start
TICK = 0.1


@dataclass(frozen=True)
class Program:
    name: str
    command: Sequence[str]
    folder: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


class Child:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.due_at = 0.0
        self.deaths_in_a_row = 0

    def start(self) -> None:
        parent = os.getpid()
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(
            self.program.command,
            cwd=self.program.folder,
            env={**os.environ, **self.program.environment},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's Ctrl-C reaches us alone
            preexec_fn=lambda: _terminate_with_parent(parent),
        )

    def reap(self) -> int | None:
        """Return the exit code of a process that has ended, once, after killing the rest of its group; else None."""
        if self.process is None:
            return None
        if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return None
        # Its number is free for others only after the wait: until then the group can be nobody else's.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        self.process = None
        return code

    def schedule_restart(self) -> float:
        """Schedule the next start and return the wait: 0.5, 1, 2 … 30 s for a program that keeps dying young."""
        settled = time.monotonic() - self.started_at >= SETTLED_SECONDS
        self.deaths_in_a_row = 1 if settled else self.deaths_in_a_row + 1
        wait = min(FIRST_WAIT * 2.0 ** min(self.deaths_in_a_row - 1, 16), LONGEST_WAIT)
        self.due_at = time.monotonic() + wait
        return wait

    def terminate(self) -> None:
        """Send SIGTERM to the main process only: a group-wide one hangs django-q2 (FACTS)."""
        if self.process:
            self.process.terminate()

    def kill(self) -> None:
        if self.process:
            os.killpg(self.process.pid, signal.SIGKILL)


class Supervisor:
    def __init__(
        self,
        programs: Sequence[Program],
        *,
        stop_seconds: float = STOP_SECONDS,
        report: Callable[[str], object] = print,
    ) -> None:
        self.children = [Child(program) for program in programs]
        self.stop_seconds = stop_seconds
        self.report = report
        self.stopping = False

    def run(self, *, when_up: Callable[[], bool] = lambda: True) -> None:
        """Supervise until a signal. `when_up` is called at every tick until it returns True."""
        up = False

        def request_stop(number: int, frame: object) -> None:
            self.stopping = True

        before = {number: signal.signal(number, request_stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            while not self.stopping:
                self.tick()
                up = up or when_up()
                time.sleep(TICK)
        finally:
            self.stop()
            for number, handler in before.items():
                signal.signal(number, handler)

    def tick(self) -> None:
        for child in self.children:
            code = child.reap()
            if code is not None:
                wait = child.schedule_restart()
                cause = f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
                self.report(f"{child.program.name} ended ({cause}); starting again in {wait:g} s")
            if child.process is None and not self.stopping and time.monotonic() >= child.due_at:
                child.start()

    def stop(self) -> None:
        """Send SIGTERM to each main process, and after `stop_seconds` SIGKILL to each group that is left."""
        self.stopping = True
        for child in self.children:
            child.terminate()
        deadline = time.monotonic() + self.stop_seconds
        while any(child.process and child.reap() is None for child in self.children):
            if time.monotonic() > deadline:
                deadline = math.inf
                for child in self.children:
                    if child.process:
                        self.report(f"{child.program.name} did not stop within {self.stop_seconds:g} s and was killed")
                        child.kill()
            time.sleep(TICK / 2)


def _terminate_with_parent(parent: int) -> None:
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)
