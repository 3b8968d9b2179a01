"""Address of the API: bind, URL, whether it is free or answers; the file that publishes it to doctor."""

import http.client
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from accessa.server import pidfile

PIDFILE, ADDRESS = "serve.pid", "serve.url"  # under ACCESSA_VAR


@dataclass(frozen=True)
class Address:
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        host, _, port = text.rpartition(":")
        return cls(host.strip("[]") or "127.0.0.1", int(port))

    @property
    def bind(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        return "http://" + Address(here, self.port).bind

    def is_free(self) -> bool:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gunicorn does
            try:
                probe.bind((self.host, self.port))
            except OSError:
                return False
        return True

    def answers(self) -> bool:
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=2)
        try:
            connection.request("GET", "/healthz")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        return True


@contextmanager
def publish_address(folder: Path, address: Address) -> Iterator[None]:
    """Write the address to a file for doctor while the block runs, unless PUBLIC_URL is set."""
    if not os.environ.get("PUBLIC_URL"):
        (folder / ADDRESS).write_text(address.url)
    try:
        yield
    finally:
        (folder / ADDRESS).unlink(missing_ok=True)


def published_url(folder: Path) -> str:
    """Return the address of the running `serve` of this folder, unless it has a PUBLIC_URL of its own."""
    if pidfile.read_pid(folder / PIDFILE) is None or not (folder / ADDRESS).exists():
        return ""
    return (folder / ADDRESS).read_text()
