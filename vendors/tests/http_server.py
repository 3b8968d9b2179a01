"""Fake vendor over HTTP on 127.0.0.1, and the real clients that call it."""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import llama_cloud
import openai

JSON = {"content-type": "application/json"}


@dataclass
class Answer:
    """What the next calls get. ``missing`` bytes are promised and never sent; ``reset`` answers nothing at all."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    missing: int = 0
    reset: bool = False
    delay: float = 0.0


class Server(ThreadingHTTPServer):
    daemon_threads = True
    answer = Answer()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Vendor(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        answer = self.server.answer
        self.close_connection = True
        time.sleep(answer.delay)
        if answer.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return
        try:
            self._send(answer)
        except OSError:  # the caller did not wait
            return

    do_GET = do_POST

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in {**JSON, "connection": "close", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(answer.body) + answer.missing))
        self.end_headers()
        self.wfile.write(answer.body)

    def handle(self) -> None:
        try:
            super().handle()
        except (OSError, ValueError):  # a socket that was reset on purpose
            return

    def finish(self) -> None:
        try:
            super().finish()
        except (OSError, ValueError):
            return

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def running_server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Vendor) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def embed(url: str, seconds: float = 10.0) -> object:
    """Call OpenAI's endpoint with its own client."""
    with openai.OpenAI(api_key="sk-secret", base_url=f"{url}/v1", max_retries=0, timeout=seconds) as client:
        return client.embeddings.create(input=["Ana's deductible"], model="text-embedding-3-small")


def list_parses(url: str, seconds: float = 10.0) -> object:
    """Call LlamaParse's endpoint with its own client."""
    with llama_cloud.LlamaCloud(api_key="llx-secret", base_url=url, max_retries=0, timeout=seconds) as client:
        return list(client.parsing.list())


CLIENTS: dict[str, Callable[..., object]] = {"openai": embed, "llamaparse": list_parses}


def error_of(call: Callable[..., object], url: str, **options: float) -> Exception:
    """Return what the client raises; fail when it raises nothing."""
    try:
        call(url, **options)
    except Exception as error:
        return error
    raise AssertionError("the call went well")


def json_body(**body: object) -> bytes:
    return json.dumps(body).encode()
