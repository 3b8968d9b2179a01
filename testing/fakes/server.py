"""HTTP server base class of every vendor fake: request dispatch, fault injection and the /control endpoint."""

import json
import socket
import sys
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, Self
from urllib.parse import unquote

from testing.fakes.faults import CAPTIVE_PORTAL, CONNECTION_REFUSED, FAULTS, Fault, FaultQueue
from testing.fakes.http_messages import ClientConnection, ErrorResponse, Request, Response, json_response
from testing.fakes.ledger import Ledger

NOTHING_SOLD = json_response({"message": "nothing was sold"})


class Server:
    """A vendor on 127.0.0.1; a context manager, or `open` and `close`.

    GET ``/control`` returns the ledger to any process, with ``?items=1`` each sold item. POST ``/control`` takes
    {"set": {setting: value}, "faults": [{"route", "fault", "times", "sold"}], "clear_faults": true,
    "clear_ledger": true}.
    """

    name = "vendor"
    settings: tuple[str, ...] = ("delay",)

    def __init__(self, *, port: int = 0, delay: float = 0.0, ledger: Ledger | None = None) -> None:
        self.port, self.delay = port, delay
        self.ledger = ledger or Ledger()
        self.requests = 0
        self.closing = Event()
        self._faults = FaultQueue()
        self._lock = Lock()
        self._listener: _Listener | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> Self:
        """Listen; after `refuse_connections`, on the same port."""
        if self._listener is None:
            self.closing.clear()
            self._listener = _Listener(self)
            self.port = self._listener.server_address[1]
            Thread(target=self._listener.serve_forever, args=(0.02,), name=self.name, daemon=True).start()
        return self

    def refuse_connections(self) -> None:
        """Refuse connections until `open`; requests and jobs in progress continue."""
        self.closing.set()
        if self._listener:
            self._listener.stop()
            self._listener = None

    def close(self) -> None:
        self.refuse_connections()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def inject_fault(self, route: str, fault: Fault | str, times: int = 1) -> None:
        """Apply ``fault`` to the next ``times`` requests that match ``route``: "METHOD /path", with * and ?.

        CONNECTION_REFUSED applies to every route and lasts until `clear_faults`.
        """
        fault = FAULTS[fault] if isinstance(fault, str) else fault
        if fault is CONNECTION_REFUSED:
            self.refuse_connections()
        else:
            self._faults.add(route, fault, times)

    def clear_faults(self) -> None:
        self._faults.clear()
        self.open()

    def respond(self, request: Request) -> Response:
        """Return the response without faults. Raises ErrorResponse."""
        raise NotImplementedError

    def error_response(self, status: int, code: str | None = None) -> Response:
        """Return an error in the vendor's own format."""
        raise NotImplementedError

    def control_fields(self) -> dict[str, Any]:
        """Return the fields that `/control` adds to the ledger's summary."""
        return {}

    def serve(self, request: Request, connection: ClientConnection) -> None:
        if request.path == "/control":
            return connection.send_response(self._control(request))
        if request.path == "/portal":
            return connection.send_response(Response(200, CAPTIVE_PORTAL, {"Content-Type": "text/html"}))
        with self._lock:
            self.requests += 1
        fault = self._faults.next(request.route)
        if fault and not fault.sold:
            return fault.send(connection, fault.change(self, NOTHING_SOLD))
        response = self._respond(request)
        if fault:
            return fault.send(connection, fault.change(self, response))
        return connection.send_response(response)

    def _respond(self, request: Request) -> Response:
        try:
            return self.respond(request)
        except ErrorResponse as error:
            return error.response

    def _control(self, request: Request) -> Response:
        if request.method == "POST":
            try:
                self._apply_command(json.loads(request.body or b"{}"))
            except (KeyError, ValueError) as error:
                return json_response({"error": repr(error)}, 400)
        summary = self.ledger.summary(items=request.parameter("items") is not None)
        return json_response({"name": self.name, "requests": self.requests, "ledger": summary, **self.control_fields()})

    def _apply_command(self, command: dict[str, Any]) -> None:
        for setting, value in command.get("set", {}).items():
            if setting not in self.settings:
                raise ValueError(f"{self.name} has no setting {setting}")
            setattr(self, setting, value)
        if command.get("clear_faults"):
            self._faults.clear()
        if command.get("clear_ledger"):
            self.ledger.clear()
        for row in command.get("faults", []):
            fault = FAULTS[row["fault"]]
            self.inject_fault(
                row.get("route", "*"), fault.after_sale() if row.get("sold") else fault, row.get("times", 1)
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
        if not isinstance(
            sys.exception(), OSError
        ):  # a client may disconnect at any time; show only errors of the fake itself
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        request = Request(self.command, unquote(path), self.path, query, self.headers, self._body())
        self.server.vendor.serve(request, ClientConnection(self, self.server.vendor.closing))

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
        """Log nothing: a line per request would fill the test output."""


def sleep(seconds: float) -> None:
    if seconds > 0:
        time.sleep(seconds)
