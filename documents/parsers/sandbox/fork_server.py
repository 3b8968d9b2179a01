"""Fork server of the sandbox: forks a child with resource limits for each request. Standard library only."""

import contextlib
import gc
import json
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

from documents.parsers.sandbox import framing, rlimits

REQUEST_BYTES = 1 << 18
STDERR_BYTES = 4096
CPU_SIGNALS = {signal.SIGXCPU, signal.SIGPROF}

Message = dict[str, Any]
Handler = Callable[[Message], Message]


def serve(requests: int, replies: int, respond: Handler) -> None:
    """Serve one request at a time until the worker closes its end. ``respond`` is called once in each child."""
    # Children are short-lived: a collection would look at, and so copy, all memory that they share with this process.
    gc.disable()
    gc.freeze()
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            request = json.loads(framing.receive(requests, limit=REQUEST_BYTES))
            outcome, response = run_child(request, respond, lifeline=requests)
            framing.send(replies, outcome.encode())
            framing.send(replies, response)


def run_child(request: Message, respond: Handler, *, lifeline: int) -> tuple[str, bytes]:
    """Return ``answered`` and the response; else ``memory``, ``cpu``, ``deadline``, ``killed`` or ``crashed``."""
    until = time.monotonic() + request["wall_seconds"]
    (stdout, stdout_end), (stderr, stderr_end) = os.pipe(), os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        _run_as_child(request, respond, parent, stdout_end, stderr_end)
    os.close(stdout_end)
    os.close(stderr_end)
    response, errors = bytearray(), bytearray()
    try:
        interruption = _read_output({stdout: response, stderr: errors}, request["answer_bytes"], lifeline, until)
    finally:
        # Harmless to a child that is already exiting: its exit status was fixed before its pipes closed.
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(stdout)
        os.close(stderr)
    outcome = interruption or _outcome(status, bytes(errors))
    return outcome, bytes(response) if outcome == "answered" else b""


def _read_output(pipes: dict[int, bytearray], max_bytes: int, lifeline: int, until: float) -> str | None:
    """Read both pipes to their ends, so that the child never blocks on a full one.

    Returns ``deadline`` or ``memory`` if cut short. Raises ``EOFError`` when the worker died.
    """
    response, errors = pipes.values()
    poll = select.poll()
    poll.register(lifeline, 0)  # POLLHUP is always reported
    for pipe in pipes:
        poll.register(pipe, select.POLLIN)
    while pipes:
        events = poll.poll(max(0.0, until - time.monotonic()) * 1000)
        if not events:
            return "deadline"
        for pipe, _ in events:
            if pipe == lifeline:
                raise EOFError
            part = os.read(pipe, framing.CHUNK)
            pipes[pipe] += part
            del errors[STDERR_BYTES:]
            if not part:
                del pipes[pipe]
                poll.unregister(pipe)
        if len(response) > max_bytes:
            return "memory"  # more text than the worker is willing to hold
    return None


def _outcome(status: int, stderr: bytes) -> str:
    if os.WIFEXITED(status):
        return "answered" if os.WEXITSTATUS(status) == 0 else "crashed"
    killer = os.WTERMSIG(status)
    if killer in CPU_SIGNALS:
        return "cpu"
    if killer == signal.SIGKILL:  # by the system, or by hand: no engine sends it
        return "killed"
    # When an allocation fails Rust says so and aborts, PDFium aborts without a word; other aborts say something else.
    if killer == signal.SIGABRT and (not stderr or b"memory allocation" in stderr or b"bad_alloc" in stderr):
        return "memory"
    return "crashed"


def _run_as_child(request: Message, respond: Handler, parent: int, stdout: int, stderr: int) -> NoReturn:
    try:
        rlimits.apply_limits(memory_mb=request["memory_mb"], cpu_seconds=request["cpu_seconds"], parent=parent)
        null = os.open(os.devnull, os.O_RDWR)
        for old, new in ((null, 0), (null, 1), (stderr, 2)):
            os.dup2(old, new)  # the worker's pipes must not stay open in here
        with open(stdout, "wb") as pipe:
            pipe.write(json.dumps(respond(request), ensure_ascii=False).encode())
        rlimits.exit_process(0)
    except BaseException:  # must never return into the fork server's loop
        rlimits.exit_process(1)
