"""Everything a vendor may do wrong, by name: before it sold anything, or after."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from fnmatch import fnmatchcase
from itertools import chain
from threading import Lock
from typing import Any, Protocol

import numpy

from testing.fakes.http_messages import Answer, Wire

HANG = 120.0  # seconds: longer than any client of ours waits
PORTAL = b"<!doctype html><html><head><title>Sign in</title></head><body>Welcome to the guest network.</body></html>"
STATUSES = (400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529)


class Faults(Protocol):
    """A vendor's way of saying no."""

    def error(self, status: int, code: str | None = None) -> Answer: ...


Change = Callable[[Faults, Answer], Answer]
Send = Callable[[Wire, Answer], None]


def honest(faults: Faults, answer: Answer) -> Answer:
    return answer


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to misbehave.

    ``sold``: the work was done and charged before it went wrong. ``only``: the one vendor whose answers it can spoil.
    """

    name: str
    sold: bool = False
    change: Change = honest
    send: Send = Wire.whole
    only: str = ""

    def after_sale(self) -> Kind:
        return self if self.sold else replace(self, name=f"{self.name}-after-sale", sold=True)


def Status(status: int, *, code: str | None = None, **headers: str) -> Kind:
    """An error answer in the vendor's own shape; ``retry_after="2"`` becomes the header retry-after."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}

    def change(faults: Faults, answer: Answer) -> Answer:
        error = faults.error(status, code)
        return replace(error, headers={**error.headers, **more})

    return Kind("-".join([f"status-{status}", *([code] if code else []), *more]), change=change)


def instead(name: str, answer: Answer, *, sold: bool = False) -> Kind:
    return Kind(name, sold=sold, change=lambda _faults, _answer: answer)


def hang(seconds: float = HANG, *, sold: bool = False) -> Kind:
    def send(wire: Wire, answer: Answer) -> None:
        wire.wait(seconds)
        wire.end()

    return Kind("hang-after-sale" if sold else "hang", sold=sold, send=send)


def late(seconds: float) -> Kind:
    """The right answer, ``seconds`` after the work was done."""

    def send(wire: Wire, answer: Answer) -> None:
        if wire.wait(seconds):
            wire.whole(answer)
        else:
            wire.end()

    return Kind("late", sold=True, send=send)


def dripping(pause: float = 1.0) -> Kind:
    def send(wire: Wire, answer: Answer) -> None:
        wire.send(answer.head(len(answer.body)))
        for byte in answer.body:
            if not wire.wait(pause):
                break
            wire.send(bytes([byte]))
        wire.end()

    return Kind("one-byte-a-second", sold=True, send=send)


def _reset(wire: Wire, answer: Answer) -> None:
    wire.reset()


def _reset_mid_body(wire: Wire, answer: Answer) -> None:
    wire.send(answer.head(len(answer.body)) + answer.body[: len(answer.body) // 2])
    wire.wait(0.05)  # RST throws away what the client has not read yet
    wire.reset()


def _cut_short(wire: Wire, answer: Answer) -> None:
    wire.send(answer.head(len(answer.body) + 1000) + answer.body)
    wire.end()


def _half(faults: Faults, answer: Answer) -> Answer:
    return replace(answer, body=answer.body[: len(answer.body) // 2])


def embeddings(name: str, spoil: Callable[[list[dict[str, Any]]], Any]) -> Kind:
    """Spoils the `data` list of an embeddings answer in place."""

    def change(faults: Faults, answer: Answer) -> Answer:
        body = json.loads(answer.body)
        if "data" in body:
            spoil(body["data"])
        return replace(answer, body=json.dumps(body).encode())

    return Kind(name, sold=True, change=change, only="openai")


def vectors(name: str, spoil: Callable[[numpy.ndarray[Any, Any]], Any]) -> Kind:
    """Spoils the first vector of an embeddings answer, in whichever encoding it is."""

    def first(data: list[dict[str, Any]]) -> None:
        old = data[0]["embedding"]
        plain = isinstance(old, list)
        row = numpy.array(old, "<f4") if plain else numpy.frombuffer(base64.b64decode(old), "<f4").copy()
        new = spoil(row)
        row = row if new is None else new
        data[0]["embedding"] = row.tolist() if plain else base64.b64encode(row.tobytes()).decode()

    return embeddings(name, first)


def results(name: str, spoil: Callable[[dict[str, Any]], Any]) -> Kind:
    """Spoils what LlamaParse says of a job, in place, when its result is asked for."""

    def change(faults: Faults, answer: Answer) -> Answer:
        body = json.loads(answer.body)
        if "job" in body:
            spoil(body)
        return replace(answer, body=json.dumps(body).encode())

    return Kind(name, sold=True, change=change, only="llamaparse-result")


def _twice(body: dict[str, Any]) -> None:
    body["markdown"]["pages"].append(body["markdown"]["pages"][0])


def _beyond(body: dict[str, Any]) -> None:
    body["markdown"]["pages"][-1]["page_number"] = 9999


def _renamed(faults: Faults, answer: Answer) -> Answer:
    return replace(answer, body=json.dumps({**json.loads(answer.body), "model": "another-model"}).encode())


def _shuffled(data: list[dict[str, Any]]) -> None:
    data.reverse()


def _misnumbered(data: list[dict[str, Any]]) -> None:
    data[-1]["index"] = 0 if len(data) > 1 else 1


def _put(value: float) -> Callable[[numpy.ndarray[Any, Any]], None]:
    def put(row: numpy.ndarray[Any, Any]) -> None:
        row[0] = value

    return put


def _until_a_date(faults: Faults, answer: Answer) -> Answer:
    error = faults.error(429)
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    return replace(error, headers={**error.headers, "retry-after": date})


def _refusals() -> Iterator[Kind]:
    yield from (Status(status) for status in STATUSES)
    yield replace(Status(429, retry_after="2"), name="status-429-seconds")
    yield Kind("status-429-date", change=_until_a_date)
    yield replace(Status(429, retry_after_ms="1500"), name="status-429-ms")
    yield replace(Status(429, retry_after="soon"), name="status-429-nonsense")
    yield Status(429, code="insufficient_quota")
    yield from (Status(status).after_sale() for status in (408, 500, 502, 503, 504))


def _broken_wires() -> Iterator[Kind]:
    yield REFUSED
    yield Kind("reset", send=_reset)
    yield Kind("reset", send=_reset).after_sale()
    yield Kind("reset-mid-body", sold=True, send=_reset_mid_body)
    yield hang()
    yield hang(sold=True)
    yield dripping()
    yield Kind("truncated-json", sold=True, change=_half)
    yield Kind("truncated-body", sold=True, send=_cut_short)


def _bad_answers() -> Iterator[Kind]:
    json_type = {"Content-Type": "application/json"}
    yield instead("empty-200", Answer(200, b"", json_type), sold=True)
    yield instead("garbage", Answer(200, bytes(range(128, 256)) * 4, json_type), sold=True)
    yield instead("html-200", Answer(200, PORTAL, {"Content-Type": "text/html"}), sold=True)
    yield instead("another-shape", Answer(200, b'{"hello":["world"]}', json_type), sold=True)
    yield instead("json-list", Answer(200, b"[1,2,3]", json_type), sold=True)
    yield instead("json-null", Answer(200, b"null", json_type), sold=True)
    yield instead("redirect-302", Answer(302, b"", {"Location": "/portal"}))
    yield instead("status-204", Answer(204), sold=True)


def _spoiled_answers() -> Iterator[Kind]:
    yield embeddings("fewer", list.pop)
    yield embeddings("more", lambda data: data.append({**data[-1], "index": len(data)}))
    yield embeddings("none", list.clear)
    yield embeddings("shuffled", _shuffled)
    yield embeddings("index-repeated", _misnumbered)
    yield vectors("too-narrow", lambda row: row[:-1])
    yield vectors("too-wide", lambda row: numpy.append(row, row[:1]))
    yield vectors("nan", _put(float("nan")))
    yield vectors("infinite", _put(float("inf")))
    yield vectors("zero-vector", lambda row: row * 0)
    yield Kind("wrong-model", sold=True, change=_renamed, only="openai")
    yield results("unknown-status", lambda body: body["job"].update(status="PONDERING"))
    yield results("another-job", lambda body: body["job"].update(id="a9a57884-921e-4ec2-b555-f4e5a97ec02a"))
    yield results("no-pages", lambda body: body.update(markdown=None))
    yield results("page-twice", _twice)
    yield results("page-beyond-the-last", _beyond)


# The door is shut as soon as this is told, for every route, until the server behaves again.
REFUSED = Kind("refused")
HARMLESS = frozenset({"shuffled", "wrong-model"})  # a client that goes by `index` reads these rightly
KINDS: dict[str, Kind] = {
    kind.name: kind for kind in chain(_refusals(), _broken_wires(), _bad_answers(), _spoiled_answers())
}


def kinds_for(vendor: str) -> dict[str, Kind]:
    """Return the kinds that make sense for "openai", "s3", "llamaparse", or its "llamaparse-result" (GET of a job)."""
    return {name: kind for name, kind in KINDS.items() if kind.only in ("", vendor)}


class Script:
    """What to do wrong next: told in order, each for so many calls of the routes it matches, then nothing."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._lines: list[tuple[str, Kind, int]] = []

    def tell(self, route: str, kind: Kind, times: int) -> None:
        with self._lock:
            self._lines.append((route, kind, times))

    def clear(self) -> None:
        with self._lock:
            self._lines.clear()

    def next(self, route: str) -> Kind | None:
        with self._lock:
            for at, (pattern, kind, times) in enumerate(self._lines):
                if fnmatchcase(route, pattern):
                    self._lines[at : at + 1] = [(pattern, kind, times - 1)] if times > 1 else []
                    return kind
        return None
