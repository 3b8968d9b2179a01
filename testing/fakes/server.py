"""The server under every stand-in: routes, the script of what to do wrong, and the control surface."""

from __future__ import annotations

import json
import socket
import sys
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, Self
from urllib.parse import unquote

from testing.fakes.faults import KINDS, PORTAL, REFUSED, Kind, Script
from testing.fakes.http_messages import Answer, Refusal, Request, Wire, as_json
from testing.fakes.ledger import Ledger

NOTHING_SOLD = as_json({"message": "nothing was sold"})


class Server:
    """A vendor on 127.0.0.1; a context manager, or `open` and `close`.

    ``/control`` tells any process what was sold (GET, with ``?items=1`` each thing) and takes orders (POST):
    {"set": {setting: value}, "misbehave": [{"route", "kind", "times", "sold"}], "behave": true, "clear": true}.
    """

    name = "vendor"
    settings: tuple[str, ...] = ("delay",)

    def __init__(self, *, port: int = 0, delay: float = 0.0, ledger: Ledger | None = None) -> None:
        self.port, self.delay = port, delay
        self.ledger = ledger or Ledger()
        self.requests = 0
        self.closing = Event()
        self._script = Script()
        self._lock = Lock()
        self._listener: _Listener | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> Self:
        """Listen; again on the same port after `shut`."""
        if self._listener is None:
            self.closing.clear()
            self._listener = _Listener(self)
            self.port = self._listener.server_address[1]
            Thread(target=self._listener.serve_forever, args=(0.02,), name=self.name, daemon=True).start()
        return self

    def shut(self) -> None:
        """Refuse connections until `open`; what the vendor has under way goes on."""
        self.closing.set()
        if self._listener:
            self._listener.stop()
            self._listener = None

    def close(self) -> None:
        self.shut()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def misbehave(self, route: str, kind: Kind | str, times: int = 1) -> None:
        """Do ``kind`` wrong at the next calls of "METHOD /path", with * and ?; REFUSED lasts until `behave`."""
        kind = KINDS[kind] if isinstance(kind, str) else kind
        if kind is REFUSED:
            self.shut()
        else:
            self._script.tell(route, kind, times)

    def behave(self) -> None:
        self._script.clear()
        self.open()

    def answer(self, request: Request) -> Answer:
        """What the vendor answers when all is well; raises Refusal."""
        raise NotImplementedError

    def error(self, status: int, code: str | None = None) -> Answer:
        """An error in the vendor's own shape."""
        raise NotImplementedError

    def told(self) -> dict[str, Any]:
        """What `/control` adds to the ledger's summary."""
        return {}

    def serve(self, request: Request, wire: Wire) -> None:
        if request.path == "/control":
            return wire.whole(self._control(request))
        if request.path == "/portal":
            return wire.whole(Answer(200, PORTAL, {"Content-Type": "text/html"}))
        with self._lock:
            self.requests += 1
        kind = self._script.next(request.route)
        if kind and not kind.sold:
            return kind.send(wire, kind.change(self, NOTHING_SOLD))
        answer = self._honest(request)
        if kind:
            return kind.send(wire, kind.change(self, answer))
        return wire.whole(answer)

    def _honest(self, request: Request) -> Answer:
        try:
            return self.answer(request)
        except Refusal as refusal:
            return refusal.answer

    def _control(self, request: Request) -> Answer:
        if request.method == "POST":
            try:
                self._order(json.loads(request.body or b"{}"))
            except (KeyError, ValueError) as error:
                return as_json({"error": repr(error)}, 400)
        summary = self.ledger.summary(items=request.parameter("items") is not None)
        return as_json({"name": self.name, "requests": self.requests, "ledger": summary, **self.told()})

    def _order(self, orders: dict[str, Any]) -> None:
        for setting, value in orders.get("set", {}).items():
            if setting not in self.settings:
                raise ValueError(f"{self.name} has no setting {setting}")
            setattr(self, setting, value)
        if orders.get("behave"):
            self._script.clear()
        if orders.get("clear"):
            self.ledger.clear()
        for order in orders.get("misbehave", []):
            kind = KINDS[order["kind"]]
            self.misbehave(
                order.get("route", "*"), kind.after_sale() if order.get("sold") else kind, order.get("times", 1)
            )


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, vendor: Server) -> None:
        self.vendor = vendor
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", vendor.port), _Handler)

    def server_bind(self) -> None:
        # Not HTTPServer's: that asks DNS for the host's name.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        # A second shutdown would hide a reset: close alone, after one that a lingering RST ignores.
        with suppress(OSError):
            if not request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER):
                request.shutdown(socket.SHUT_WR)
        request.close()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # clients leave as they like; our own mistakes are shown
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        request = Request(self.command, unquote(path), self.path, query, self.headers, self._body())
        self.server.vendor.serve(request, Wire(self, self.server.vendor.closing))

    do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = do_OPTIONS = do_GET

    def _body(self) -> bytes:
        if "chunked" in (self.headers.get("Transfer-Encoding") or "").lower():
            return b"".join(iter(self._chunk, b""))
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _chunk(self) -> bytes:
        chunk = self.rfile.read(int(self.rfile.readline().split(b";")[0], 16))
        self.rfile.readline()
        return chunk

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a test's output is not a log."""


def pause(seconds: float) -> None:
    if seconds > 0:
        time.sleep(seconds)
