"""API server for tests: gunicorn in its own process group, on the test database."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests
from django.conf import settings

from testing.cluster import database_params, database_url, wait_until
from testing.ports import free_port


class ApiServer:
    """One started gunicorn. ``url`` is where it listens."""

    def __init__(self, application: str, environment: dict[str, str], port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.log = Path(tempfile.mkstemp(prefix="accessa-web-", suffix=".log")[1])
        command = [sys.executable, "-m", "gunicorn", application, "-c", "python:accessa.server.gunicorn_conf"]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, "--bind", f"127.0.0.1:{port}"],
                cwd=settings.BASE_DIR,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def is_up(self) -> bool:
        try:
            return requests.get(f"{self.url}/healthz", timeout=2).ok
        except requests.RequestException:
            return False

    def stop(self, seconds: float = 30) -> None:
        self.process.terminate()
        self.process.wait(seconds)

    @property
    def log_text(self) -> str:
        return self.log.read_text(errors="replace")


@contextmanager
def running_api_server(
    *, application: str = "accessa.wsgi:application", port: int = 0, **environment: object
) -> Iterator[ApiServer]:
    """Run an API server that answers, until the end of the block."""
    port = port or free_port()
    defaults = {
        "DATABASE_URL": database_url(database_params()),
        "PUBLIC_URL": f"http://127.0.0.1:{port}",
        "WEB_WORKERS": 1,
        "WEB_THREADS": 4,
    }
    server = ApiServer(
        application, os.environ | {name: str(value) for name, value in (defaults | environment).items()}, port
    )
    try:
        try:
            wait_until(server.is_up, seconds=60)
        except TimeoutError as error:
            raise AssertionError(f"The API does not answer:\n{server.log_text}") from error
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()
        server.log.unlink(missing_ok=True)
