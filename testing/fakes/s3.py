"""Fake S3: moto behind a fault-injecting proxy, or ministack, which checks signatures and lengths."""

import http.client
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self
from xml.sax.saxutils import escape

import boto3
import requests
from botocore.config import Config
from moto.server import ThreadedMotoServer

from testing.fakes.http_messages import ErrorResponse, Request, Response
from testing.fakes.server import Server, sleep
from testing.ports import free_port

ACCESS_KEY, SECRET_KEY = "test", "test"  # the only pair that ministack knows
REGION = "us-east-1"
BUCKETS = ("raw", "parsed")
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "date", "server"}
CODES = {403: "AccessDenied", 404: "NoSuchKey", 500: "InternalError", 503: "SlowDown"}
Stop = Callable[[], object]


class S3Server(Server):
    """``url`` is the endpoint; path-style addresses. ``strict``: ministack instead of moto.

    ``delay``: seconds a call takes. The ledger counts each PUT and DELETE of a key that went well.
    """

    name = "s3"

    def __init__(self, *, strict: bool = False, buckets: Sequence[str] = BUCKETS, **server: Any) -> None:
        super().__init__(**server)
        self.strict, self.buckets = strict, buckets
        self.access_key, self.secret_key, self.region = ACCESS_KEY, SECRET_KEY, REGION
        self._behind = ("127.0.0.1", 0)
        self._stop: Stop | None = None

    @property
    def endpoint(self) -> str:
        return self.url

    def client(self) -> Any:
        """Return a boto3 client of this server that retries nothing."""
        plain = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
        config = Config(
            signature_version="s3v4", s3={"addressing_style": "path"}, retries={"total_max_attempts": 1},
            connect_timeout=5, read_timeout=30, **plain,
        )  # fmt: skip
        return boto3.client(
            "s3", endpoint_url=self.url, aws_access_key_id=self.access_key, aws_secret_access_key=self.secret_key,
            region_name=self.region, config=config,
        )  # fmt: skip

    def open(self) -> Self:
        super().open()
        if self._stop is None:
            self._behind, self._stop = _ministack() if self.strict else _moto()
            client = self.client()
            for bucket in self.buckets:
                client.create_bucket(Bucket=bucket)
            client.close()
            self.ledger.clear()
        return self

    def close(self) -> None:
        super().close()
        if self._stop:
            self._stop()
            self._stop = None

    def respond(self, request: Request) -> Response:
        sleep(self.delay)
        if self.strict and _is_strangers(request):  # ministack gives everything to everybody
            raise ErrorResponse(self.error_response(403))
        connection = http.client.HTTPConnection(*self._behind, timeout=60)
        try:
            connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                if name.lower() not in HOP_BY_HOP | {"content-length", "expect"}:
                    connection.putheader(name, value)
            if request.body or request.method in ("PUT", "POST"):
                connection.putheader("Content-Length", str(len(request.body)))
            connection.endheaders(request.body or None)
            upstream = connection.getresponse()
            ours = HOP_BY_HOP if request.method == "HEAD" else HOP_BY_HOP | {"content-length"}
            headers = {name: value for name, value in upstream.getheaders() if name.lower() not in ours}
            answer = Response(upstream.status, upstream.read(), headers)
        finally:
            connection.close()
        if request.method in ("PUT", "DELETE") and answer.status < 300:
            self.ledger.sell([request.route])
        return answer

    def error_response(self, status: int, code: str | None = None) -> Response:
        code = code or CODES.get(status, "StandIn")
        body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{escape(code)}</Code><Message/></Error>'
        return Response(status, body.encode(), {"Content-Type": "application/xml"})


def _is_strangers(request: Request) -> bool:
    signed = request.headers.get("Authorization") or request.parameter("X-Amz-Signature")
    return request.method != "OPTIONS" and not signed


def _moto() -> tuple[tuple[str, int], Stop]:
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request otherwise
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()

    def stop() -> None:
        # What moto holds belongs to the process: the next server would begin with it.
        requests.post(f"http://{host}:{port}/moto-api/reset", timeout=10)
        moto.stop()

    return (host, port), stop


def _ministack() -> tuple[tuple[str, int], Stop]:
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
    return ("127.0.0.1", port), stop


def _await(port: int, process: subprocess.Popen[bytes], stop: Stop) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.05)
    stop()
    raise RuntimeError("ministack did not start")
