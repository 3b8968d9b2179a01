"""Baseline for the job queue: procrastinate with one sync task and one worker process. Argument: a conninfo."""

import sys
from typing import Any

import procrastinate


def app(conninfo: str) -> Any:
    procrastinate_app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=conninfo))
    procrastinate_app.task(name="noop")(_noop)
    return procrastinate_app


def _noop() -> None:
    return None


if __name__ == "__main__":
    app(sys.argv[1]).run_worker()
