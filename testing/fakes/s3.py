"""Fake S3 with fault injection: moto in this process, or ministack, which checks signatures and lengths."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from io import BytesIO
from typing import Any, Self
from xml.sax.saxutils import escape

import boto3
from botocore.config import Config
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.test import EnvironBuilder, run_wsgi_app

from testing.fakes.http_messages import ErrorResponse, Request, Response
from testing.fakes.server import Server, sleep
from testing.ports import free_port

ACCESS_KEY, SECRET_KEY = "test", "test"  # the only pair that ministack knows
REGION = "us-east-1"
BUCKETS = ("raw", "parsed")
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "date", "server"}
CODES = {403: "AccessDenied", 404: "NoSuchKey", 500: "InternalError", 503: "SlowDown"}
Stop = Callable[[], object]
Headers = list[tuple[str, str]]
# What moto holds belongs to the process, so all servers here have the same application, emptied with the last one.
MOTO = DomainDispatcherApplication(create_backend_app)
_servers: set[Server] = set()


class S3Server(Server):
    """``url`` is the endpoint; path-style addresses. ``strict``: ministack instead of moto.

    ``delay``: seconds a call takes. The ledger counts each PUT and DELETE of a key that went well.
    """

    name = "s3"

    def __init__(self, *, strict: bool = False, buckets: Sequence[str] = BUCKETS, **server: Any) -> None:
        super().__init__(**server)
        self.strict, self.buckets = strict, buckets
        self.access_key, self.secret_key, self.region = ACCESS_KEY, SECRET_KEY, REGION
        self._ministack_port = 0
        self._stop: Stop | None = None
        self._clients: dict[str, Any] = {}

    @property
    def endpoint(self) -> str:
        return self.url

    def client(self, service: str = "s3") -> Any:
        """Return a boto3 client of this server that retries nothing: shared, since boto3 takes 30 ms."""
        if service not in self._clients:
            self._clients[service] = self._new_client(service)
        return self._clients[service]

    def _new_client(self, service: str) -> Any:
        plain = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
        config = Config(
            signature_version="s3v4", s3={"addressing_style": "path"}, retries={"total_max_attempts": 1},
            connect_timeout=5, read_timeout=30, **plain,
        )  # fmt: skip
        return boto3.client(
            service, endpoint_url=self.url, aws_access_key_id=self.access_key, aws_secret_access_key=self.secret_key,
            region_name=self.region, config=config,
        )  # fmt: skip

    def open(self) -> Self:
        super().open()
        if self._stop is None:
            if self.strict:
                self._ministack_port, self._stop = _start_ministack()
            else:
                _servers.add(self)
                self._stop = partial(_leave_moto, self)
            for bucket in self.buckets:
                self.client().create_bucket(Bucket=bucket)
            self.ledger.clear()
        return self

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        super().close()
        if self._stop:
            self._stop()
            self._stop = None

    def respond(self, request: Request) -> Response:
        sleep(self.delay)
        if self.strict and _is_strangers(request):  # ministack gives everything to everybody
            raise ErrorResponse(self.error_response(403))
        status, headers, body = self._ask_ministack(request) if self.strict else _ask_moto(request)
        dropped = HOP_BY_HOP if request.method == "HEAD" else HOP_BY_HOP | {"content-length"}
        kept = {name: value for name, value in headers if name.lower() not in dropped}
        if request.method in ("PUT", "DELETE") and status < 300:
            self.ledger.sell([request.route])
        return Response(status, body, kept)

    def _ask_ministack(self, request: Request) -> tuple[int, Headers, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._ministack_port, timeout=60)
        try:
            connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
            for name, value in _end_to_end_headers(request):
                connection.putheader(name, value)
            if request.body or request.method in ("PUT", "POST"):
                connection.putheader("Content-Length", str(len(request.body)))
            connection.endheaders(request.body or None)
            upstream = connection.getresponse()
            return upstream.status, upstream.getheaders(), upstream.read()
        finally:
            connection.close()

    def error_response(self, status: int, code: str | None = None) -> Response:
        code = code or CODES.get(status, "StandIn")
        body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{escape(code)}</Code><Message/></Error>'
        return Response(status, body.encode(), {"Content-Type": "application/xml"})


def _is_strangers(request: Request) -> bool:
    signed = request.headers.get("Authorization") or request.parameter("X-Amz-Signature")
    return request.method != "OPTIONS" and not signed


def _end_to_end_headers(request: Request) -> Headers:
    dropped = HOP_BY_HOP | {"content-length", "expect"}
    return [(name, value) for name, value in request.headers.items() if name.lower() not in dropped]


def _ask_moto(request: Request) -> tuple[int, Headers, bytes]:
    environ: dict[str, Any] = {
        f"HTTP_{name.upper().replace('-', '_')}": value for name, value in _end_to_end_headers(request)
    }
    environ |= {
        "REQUEST_METHOD": request.method, "SCRIPT_NAME": "", "PATH_INFO": request.path.encode().decode("latin-1"),
        "QUERY_STRING": request.query, "RAW_URI": request.target, "SERVER_NAME": "127.0.0.1", "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1", "CONTENT_LENGTH": str(len(request.body)),
        "CONTENT_TYPE": request.headers.get("Content-Type", ""), "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(request.body), "wsgi.errors": sys.stderr, "wsgi.multithread": True,
    }  # fmt: skip
    body, status, headers = run_wsgi_app(MOTO, environ)
    return int(status.split()[0]), list(headers), b"".join(body)


def _leave_moto(server: Server) -> None:
    _servers.discard(server)
    if not _servers:
        run_wsgi_app(MOTO, EnvironBuilder(path="/moto-api/reset", method="POST").get_environ())


def _start_ministack() -> tuple[int, Stop]:
    port = free_port()
    folder = tempfile.TemporaryDirectory(prefix="ministack-")
    process = subprocess.Popen(
        [sys.executable, "-m", "ministack"],
        cwd=folder.name,
        env={**os.environ, "GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def stop() -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        folder.cleanup()

    _await(port, process, stop)
    return port, stop


def _await(port: int, process: subprocess.Popen[bytes], stop: Stop) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.05)
    stop()
    raise RuntimeError("ministack did not start")
