"""HTTP requests and responses of the fakes, and the client connection that can reset, stall or cut a body."""

from __future__ import annotations

import json
import re
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from threading import Event
from typing import Any
from urllib.parse import parse_qs

INLINE_BODY_BYTES = 16_384  # bytes of a body that go out with the head; the rest is not copied for it
POLL_SECONDS = 0.02  # seconds between two checks whether a waiting client has disconnected


@dataclass(frozen=True, slots=True)
class Request:
    """``path`` is decoded; ``target`` is what the client sent, with its query."""

    method: str
    path: str
    target: str
    query: str
    headers: Message
    body: bytes

    @property
    def route(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def parameters(self) -> dict[str, list[str]]:
        return parse_qs(self.query)

    def parameter(self, name: str) -> str | None:
        return next(iter(self.parameters.get(name, [])), None)

    @property
    def bearer(self) -> str:
        scheme, _, token = (self.headers.get("Authorization") or "").partition(" ")
        return token if scheme.lower() == "bearer" else ""

    def form(self) -> dict[str, Part]:
        """Return the parts of a multipart/form-data body by their names."""
        boundary = re.search(r'boundary="?([^";]+)', self.headers.get("Content-Type") or "")
        if not boundary:
            return {}
        pieces = (b"\r\n" + self.body).split(b"\r\n--" + boundary[1].encode())
        parts = [Part.parse(*piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")[::2]) for piece in pieces[1:-1]]
        return {part.name: part for part in parts}


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    filename: str
    content: bytes

    @classmethod
    def parse(cls, head: bytes, content: bytes) -> Part:
        values = dict(re.findall(r'(?<![\w-])(name|filename)="([^"]*)"', head.decode("utf-8", "replace")))
        return cls(values.get("name", ""), values.get("filename", ""), content)


@dataclass(frozen=True, slots=True)
class Response:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def head(self, length: int) -> bytes:
        """Return the status line and the headers for a body of ``length`` bytes."""
        phrase = HTTPStatus(self.status).phrase if self.status in HTTPStatus._value2member_map_ else "Unknown"
        lines = [f"HTTP/1.1 {self.status} {phrase}"]
        if self.status != 204 and "content-length" not in {name.lower() for name in self.headers}:
            lines.append(f"Content-Length: {length}")
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class ErrorResponse(Exception):
    """The vendor says no; ``response`` is how."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps(value, separators=(",", ":")).encode()
    return Response(status, body, {"Content-Type": "application/json", **(headers or {})})


class ClientConnection:
    """One client's connection, with the operations that faults need."""

    def __init__(self, handler: BaseHTTPRequestHandler, closing: Event) -> None:
        self.handler, self.closing = handler, closing

    def send(self, data: bytes | memoryview) -> None:
        self.handler.connection.sendall(data)

    def send_response(self, response: Response) -> None:
        bodiless = self.handler.command == "HEAD" or response.status in (204, 304)
        self.send(response.head(len(response.body)) + (b"" if bodiless else response.body[:INLINE_BODY_BYTES]))
        if len(response.body) > INLINE_BODY_BYTES and not bodiless:
            self.send(memoryview(response.body)[INLINE_BODY_BYTES:])

    def close(self) -> None:
        """Close the connection in an orderly way once this request is done."""
        self.handler.close_connection = True

    def reset(self) -> None:
        """Close with RST, so that the client reads ECONNRESET instead of the end of a stream."""
        self.handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def wait(self, seconds: float) -> bool:
        """Sleep; return whether the client is still there and the server still open."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self.closing.wait(min(POLL_SECONDS, left)) or self._has_left():
                return False
        return True

    def _has_left(self) -> bool:
        try:
            return not self.handler.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
