"""Server of Milvus Lite on loopback, for one machine: its folder belongs to one process, which others call."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import create_connection

START_SECONDS = 60.0
STOP_SECONDS = 10.0
HOST = "127.0.0.1"


def command(folder: Path, port: int) -> list[str]:
    """Return the command of a server on ``port`` with the data of ``folder``."""
    own = [sys.executable, "-m", "milvus_lite", "server", "--data-dir", str(folder)]
    return [*own, "--host", HOST, "--port", str(port)]


@contextmanager
def running_server(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server on ``port`` with the data of ``folder``, and stop it. Raises ``TimeoutError``."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "milvus.log").open("ab") as log:
        server = subprocess.Popen(command(folder, port), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _wait(server, port)
        yield server
    finally:
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(STOP_SECONDS)
        server.kill()
        server.wait()


def _wait(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), create_connection((HOST, port), timeout=1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"Milvus Lite does not listen at port {port}; see its log.")
