"""Length-prefixed messages over pipes, between worker, fork server and child."""

import os
import select
import struct
import time

LENGTH = struct.Struct(">I")
CHUNK = 1 << 16


def send(pipe: int, message: bytes) -> None:
    """Write the length and the message. Raises ``BrokenPipeError`` when the reader is gone."""
    for part in (LENGTH.pack(len(message)), message):
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(pipe, rest) :]


def receive(pipe: int, *, limit: int, until: float | None = None) -> bytes:
    """Read a message.

    Raises ``EOFError`` when the writer is gone, ``TimeoutError`` past ``until`` (``time.monotonic``), ``ValueError``
    when the message is longer than ``limit`` bytes.
    """
    (length,) = LENGTH.unpack(_read_exactly(pipe, LENGTH.size, until))
    if length > limit:
        raise ValueError(f"a message of {length} bytes is over the limit of {limit}")
    return _read_exactly(pipe, length, until)


def _read_exactly(pipe: int, length: int, until: float | None) -> bytes:
    poll = select.poll()  # not select(): a worker's pipe may well be numbered above 1023
    poll.register(pipe, select.POLLIN)
    received = bytearray()
    while len(received) < length:
        if not poll.poll(None if until is None else max(0.0, until - time.monotonic()) * 1000):
            raise TimeoutError
        part = os.read(pipe, min(CHUNK, length - len(received)))
        if not part:
            raise EOFError
        received += part
    return bytes(received)
