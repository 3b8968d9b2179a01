"""What a zygote does: fork a capped child for each request, hear it out, say how it ended. Standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

from documents.parsers.sandbox import framing, rlimits

REQUEST_BYTES = 1 << 18
COMPLAINT_BYTES = 4096
CPU_SIGNALS = {signal.SIGXCPU, signal.SIGPROF}

Message = dict[str, Any]
Handler = Callable[[Message], Message]


def serve(requests: int, replies: int, answer_to: Handler) -> None:
    """One document at a time until the worker closes its end. ``answer_to`` is called in the child, once."""
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            ended, answer = run_child(
                json.loads(framing.receive(requests, limit=REQUEST_BYTES)), answer_to, lifeline=requests
            )
            framing.send(replies, ended.encode())
            framing.send(replies, answer)


def run_child(request: Message, answer_to: Handler, *, lifeline: int) -> tuple[str, bytes]:
    """``answered``, ``memory``, ``cpu``, ``deadline`` or ``crashed``, and the answer's bytes if it is the first."""
    until = time.monotonic() + request["wall_seconds"]
    (answer, answer_end), (complaint, complaint_end) = os.pipe(), os.pipe()
    zygote, child = os.getpid(), os.fork()
    if child == 0:
        _be_the_child(request, answer_to, zygote, answer_end, complaint_end)
    os.close(answer_end)
    os.close(complaint_end)
    ear = ChildOutput(answer, complaint, most=request["answer_bytes"])
    try:
        cut_short = ear.listen(lifeline, until)
    finally:
        # Harmless to a child that is already on its way out: its exit status was fixed before its pipes closed.
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(answer)
        os.close(complaint)
    ended = cut_short or _ending(status, bytes(ear.complaint))
    return ended, bytes(ear.answer) if ended == "answered" else b""


class ChildOutput:
    """Hears a child out on both its pipes, so that it never blocks on a full one."""

    def __init__(self, answer: int, complaint: int, *, most: int) -> None:
        self.answer, self.complaint, self.most = bytearray(), bytearray(), most
        self._pipes = {answer: self.answer, complaint: self.complaint}

    def listen(self, lifeline: int, until: float) -> str | None:
        """Until both pipes end. Returns how it was cut short, if it was; ``EOFError`` when the worker has died."""
        ready = select.poll()
        ready.register(lifeline, 0)  # POLLHUP is reported unasked
        for pipe in self._pipes:
            ready.register(pipe, select.POLLIN)
        while self._pipes:
            events = ready.poll(max(0.0, until - time.monotonic()) * 1000)
            if not events:
                return "deadline"
            for pipe, _ in events:
                if pipe == lifeline:
                    raise EOFError
                if not self._hear(pipe):
                    ready.unregister(pipe)
            if len(self.answer) > self.most:
                return "memory"  # more text than the worker is willing to hold
        return None

    def _hear(self, pipe: int) -> bool:
        part = os.read(pipe, framing.CHUNK)
        self._pipes[pipe] += part
        del self.complaint[COMPLAINT_BYTES:]
        if not part:
            del self._pipes[pipe]
        return bool(part)


def _ending(status: int, complaint: bytes) -> str:
    if os.WIFEXITED(status):
        return "answered" if os.WEXITSTATUS(status) == 0 else "crashed"
    killer = os.WTERMSIG(status)
    if killer in CPU_SIGNALS:
        return "cpu"
    # When an allocation fails Rust says so and aborts, PDFium aborts without a word; other aborts say something else.
    if killer == signal.SIGABRT and (not complaint or b"memory allocation" in complaint or b"bad_alloc" in complaint):
        return "memory"
    return "crashed"


def _be_the_child(request: Message, answer_to: Handler, zygote: int, answer: int, complaint: int) -> NoReturn:
    try:
        rlimits.apply_limits(memory_mb=request["memory_mb"], cpu_seconds=request["cpu_seconds"], parent=zygote)
        nothing = os.open(os.devnull, os.O_RDWR)
        for old, new in ((nothing, 0), (nothing, 1), (complaint, 2)):
            os.dup2(old, new)  # the worker's pipes must not stay open in here
        framing.write(answer, json.dumps(answer_to(request), ensure_ascii=False).encode())
        rlimits.exit_process(0)
    except BaseException:  # must never return into the zygote's loop
        rlimits.exit_process(1)
