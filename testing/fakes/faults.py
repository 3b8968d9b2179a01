"""Faults that a vendor fake can inject, by name: HTTP errors, broken connections and corrupted responses."""

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

from testing.fakes.http_messages import ClientConnection, Response

HANG_SECONDS = 120.0  # longer than every client's timeout
CAPTIVE_PORTAL = (
    b"<!doctype html><html><head><title>Sign in</title></head><body>Welcome to the guest network.</body></html>"
)
STATUSES = (400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529)


class ErrorFormat(Protocol):
    """The vendor's error format."""

    def error_response(self, status: int, code: str | None = None) -> Response: ...


Change = Callable[[ErrorFormat, Response], Response]
Send = Callable[[ClientConnection, Response], None]


def unchanged(errors: ErrorFormat, response: Response) -> Response:
    return response


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a response.

    ``sold``: the request was executed and charged before the fault. ``vendor``: the only vendor it applies to, if any.
    """

    name: str
    sold: bool = False
    change: Change = unchanged
    send: Send = ClientConnection.send_response
    vendor: str = ""

    def after_sale(self) -> Fault:
        return self if self.sold else replace(self, name=f"{self.name}-after-sale", sold=True)


def http_error(status: int, *, code: str | None = None, **headers: str) -> Fault:
    """Return an error response in the vendor's format; ``retry_after="2"`` becomes the header retry-after."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}

    def change(errors: ErrorFormat, response: Response) -> Response:
        error = errors.error_response(status, code)
        return replace(error, headers={**error.headers, **more})

    return Fault("-".join([f"status-{status}", *([code] if code else []), *more]), change=change)


def replacement(name: str, response: Response, *, sold: bool = False) -> Fault:
    return Fault(name, sold=sold, change=lambda _errors, _response: response)


def hang(seconds: float = HANG_SECONDS, *, sold: bool = False) -> Fault:
    def send(connection: ClientConnection, response: Response) -> None:
        connection.wait(seconds)
        connection.close()

    return Fault("hang-after-sale" if sold else "hang", sold=sold, send=send)


def delayed(seconds: float) -> Fault:
    """Send the correct response ``seconds`` late."""

    def send(connection: ClientConnection, response: Response) -> None:
        if connection.wait(seconds):
            connection.send_response(response)
        else:
            connection.close()

    return Fault("late", sold=True, send=send)


def _send_slowly(connection: ClientConnection, content: bytes, pause: float) -> None:
    """Send one byte, then wait ``pause`` seconds, and so on; then close."""
    for byte in content:
        if not connection.wait(pause):
            break
        connection.send(bytes([byte]))
    connection.close()


def slow_head(pause: float) -> Fault:
    def send(connection: ClientConnection, response: Response) -> None:
        _send_slowly(connection, response.head(len(response.body)), pause)

    return Fault("slow-head", sold=True, send=send)


def slow_body(pause: float = 1.0) -> Fault:
    def send(connection: ClientConnection, response: Response) -> None:
        connection.send(response.head(len(response.body)))
        _send_slowly(connection, response.body, pause)

    return Fault("one-byte-a-second", sold=True, send=send)


def _reset(connection: ClientConnection, response: Response) -> None:
    connection.reset()


def _reset_mid_body(connection: ClientConnection, response: Response) -> None:
    connection.send(response.head(len(response.body)) + response.body[: len(response.body) // 2])
    connection.wait(0.05)  # RST throws away what the client has not read yet
    connection.reset()


def _cut_short(connection: ClientConnection, response: Response) -> None:
    connection.send(response.head(len(response.body) + 1000) + response.body)
    connection.close()


def _half(errors: ErrorFormat, response: Response) -> Response:
    return replace(response, body=response.body[: len(response.body) // 2])


def embeddings_fault(name: str, spoil: Callable[[list[dict[str, Any]]], Any]) -> Fault:
    """Corrupt the `data` list of an embeddings response in place."""

    def change(errors: ErrorFormat, response: Response) -> Response:
        body = json.loads(response.body)
        if "data" in body:
            spoil(body["data"])
        return replace(response, body=json.dumps(body).encode())

    return Fault(name, sold=True, change=change, vendor="openai")


def vector_fault(name: str, spoil: Callable[[numpy.ndarray[Any, Any]], Any]) -> Fault:
    """Corrupt the first vector of an embeddings response, base64 or plain."""

    def first(data: list[dict[str, Any]]) -> None:
        old = data[0]["embedding"]
        plain = isinstance(old, list)
        row = numpy.array(old, "<f4") if plain else numpy.frombuffer(base64.b64decode(old), "<f4").copy()
        new = spoil(row)
        row = row if new is None else new
        data[0]["embedding"] = row.tolist() if plain else base64.b64encode(row.tobytes()).decode()

    return embeddings_fault(name, first)


def parse_result_fault(name: str, spoil: Callable[[dict[str, Any]], Any]) -> Fault:
    """Corrupt LlamaParse's response to GET of a job, in place."""

    def change(errors: ErrorFormat, response: Response) -> Response:
        body = json.loads(response.body)
        if "job" in body:
            spoil(body)
        return replace(response, body=json.dumps(body).encode())

    return Fault(name, sold=True, change=change, vendor="llamaparse-result")


def _twice(body: dict[str, Any]) -> None:
    body["markdown"]["pages"].append(body["markdown"]["pages"][0])


def _beyond(body: dict[str, Any]) -> None:
    body["markdown"]["pages"][-1]["page_number"] = 9999


def _renamed(errors: ErrorFormat, response: Response) -> Response:
    return replace(response, body=json.dumps({**json.loads(response.body), "model": "another-model"}).encode())


def _shuffled(data: list[dict[str, Any]]) -> None:
    data.reverse()


def _misnumbered(data: list[dict[str, Any]]) -> None:
    data[-1]["index"] = 0 if len(data) > 1 else 1


def _put(value: float) -> Callable[[numpy.ndarray[Any, Any]], None]:
    def put(row: numpy.ndarray[Any, Any]) -> None:
        row[0] = value

    return put


def _until_a_date(errors: ErrorFormat, response: Response) -> Response:
    error = errors.error_response(429)
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    return replace(error, headers={**error.headers, "retry-after": date})


def _error_statuses() -> Iterator[Fault]:
    yield from (http_error(status) for status in STATUSES)
    yield replace(http_error(429, retry_after="2"), name="status-429-seconds")
    yield Fault("status-429-date", change=_until_a_date)
    yield replace(http_error(429, retry_after_ms="1500"), name="status-429-ms")
    yield replace(http_error(429, retry_after="soon"), name="status-429-nonsense")
    yield http_error(429, code="insufficient_quota")
    yield from (http_error(status).after_sale() for status in (408, 500, 502, 503, 504))


def _broken_connections() -> Iterator[Fault]:
    yield CONNECTION_REFUSED
    yield Fault("reset", send=_reset)
    yield Fault("reset", send=_reset).after_sale()
    yield Fault("reset-mid-body", sold=True, send=_reset_mid_body)
    yield hang()
    yield hang(sold=True)
    yield slow_body()
    yield Fault("truncated-json", sold=True, change=_half)
    yield Fault("truncated-body", sold=True, send=_cut_short)


def _bad_responses() -> Iterator[Fault]:
    json_type = {"Content-Type": "application/json"}
    yield replacement("empty-200", Response(200, b"", json_type), sold=True)
    yield replacement("garbage", Response(200, bytes(range(128, 256)) * 4, json_type), sold=True)
    yield replacement("html-200", Response(200, CAPTIVE_PORTAL, {"Content-Type": "text/html"}), sold=True)
    yield replacement("another-shape", Response(200, b'{"hello":["world"]}', json_type), sold=True)
    yield replacement("json-list", Response(200, b"[1,2,3]", json_type), sold=True)
    yield replacement("json-null", Response(200, b"null", json_type), sold=True)
    yield replacement("redirect-302", Response(302, b"", {"Location": "/portal"}))
    yield replacement("status-204", Response(204), sold=True)


def _corrupted_responses() -> Iterator[Fault]:
    yield embeddings_fault("fewer", list.pop)
    yield embeddings_fault("more", lambda data: data.append({**data[-1], "index": len(data)}))
    yield embeddings_fault("none", list.clear)
    yield embeddings_fault("shuffled", _shuffled)
    yield embeddings_fault("index-repeated", _misnumbered)
    yield vector_fault("too-narrow", lambda row: row[:-1])
    yield vector_fault("too-wide", lambda row: numpy.append(row, row[:1]))
    yield vector_fault("nan", _put(float("nan")))
    yield vector_fault("infinite", _put(float("inf")))
    yield vector_fault("zero-vector", lambda row: row * 0)
    yield Fault("wrong-model", sold=True, change=_renamed, vendor="openai")
    yield parse_result_fault("unknown-status", lambda body: body["job"].update(status="PONDERING"))
    yield parse_result_fault("another-job", lambda body: body["job"].update(id="a9a57884-921e-4ec2-b555-f4e5a97ec02a"))
    yield parse_result_fault("no-pages", lambda body: body.update(markdown=None))
    yield parse_result_fault("page-twice", _twice)
    yield parse_result_fault("page-beyond-the-last", _beyond)


# Applies at once, to every route, until `clear_faults`.
CONNECTION_REFUSED = Fault("refused")
HARMLESS = frozenset({"shuffled", "wrong-model"})  # a client that orders by `index` reads these correctly
FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in chain(_error_statuses(), _broken_connections(), _bad_responses(), _corrupted_responses())
}


def faults_for(vendor: str) -> dict[str, Fault]:
    """Return the faults that apply to "openai", "s3", "llamaparse", or its "llamaparse-result" (GET of a job)."""
    return {name: fault for name, fault in FAULTS.items() if fault.vendor in ("", vendor)}


class FaultQueue:
    """Queue of faults: the first whose route matches a request applies to it, ``times`` times."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._queue: list[tuple[str, Fault, int]] = []

    def add(self, route: str, fault: Fault, times: int) -> None:
        with self._lock:
            self._queue.append((route, fault, times))

    def clear(self) -> None:
        with self._lock:
            self._queue.clear()

    def next(self, route: str) -> Fault | None:
        with self._lock:
            for index, (pattern, fault, times) in enumerate(self._queue):
                if fnmatchcase(route, pattern):
                    self._queue[index : index + 1] = [(pattern, fault, times - 1)] if times > 1 else []
                    return fault
        return None
