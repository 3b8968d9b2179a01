"""procrastinate as its manual shows it: a sync task, a worker process, one job at a time. Run with a conninfo."""

from __future__ import annotations

import sys
from typing import Any

import procrastinate


def app(conninfo: str) -> Any:
    made = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=conninfo))
    made.task(name="noop")(_noop)
    return made


def _noop() -> None:
    return None


if __name__ == "__main__":
    app(sys.argv[1]).run_worker()
