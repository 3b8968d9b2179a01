"""The API as it is served: gunicorn in a session of its own, on the test's database."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests
from django.conf import settings

from testing.cluster import database_url, until, used_database
from testing.ports import free_port


class Web:
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

    def answers(self) -> bool:
        try:
            return requests.get(f"{self.url}/healthz", timeout=2).ok
        except requests.RequestException:
            return False

    def stop(self, seconds: float = 30) -> None:
        self.process.terminate()
        self.process.wait(seconds)

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")


@contextmanager
def web(*, application: str = "accessa.wsgi:application", port: int = 0, **environment: object) -> Iterator[Web]:
    """An API that answers, until the end of the block."""
    port = port or free_port()
    given = {
        "DATABASE_URL": database_url(used_database()),
        "PUBLIC_URL": f"http://127.0.0.1:{port}",
        "WEB_WORKERS": 1,
        "WEB_THREADS": 4,
    }
    made = Web(application, os.environ | {name: str(value) for name, value in (given | environment).items()}, port)
    try:
        try:
            until(made.answers, seconds=60)
        except TimeoutError as error:
            raise AssertionError(f"The API does not answer:\n{made.said}") from error
        yield made
    finally:
        if made.process.poll() is None:
            made.stop()
        made.log.unlink(missing_ok=True)
