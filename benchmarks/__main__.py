"""Command line `python -m benchmarks [NAME …]`: one JSON line on stdout, progress on stderr; no NAME lists them.

Exits with 1 where a goal is not met, unless ``--quick``.
"""

import argparse
import sys
from importlib import import_module

from benchmarks import database

# Each is a module here with `SUMMARY`, `add_arguments(parser)` and `measure(options) -> Result`.
NAMES = (
    "admin",
    "adoption",
    "answers",
    "api",
    "chaos",
    "chunking",
    "commit",
    "connectors",
    "embed",
    "fidelity",
    "hosts",
    "load",
    "memory",
    "outage",
    "pipeline",
    "queue",
    "recall",
    "restore",
    "retrieval",
    "search",
    "statutes",
    "success",
    "tables",
)


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
        print("\n".join(NAMES), file=sys.stdout if len(sys.argv) < 2 else sys.stderr)
        return 0 if len(sys.argv) < 2 else 2
    name = sys.argv[1]
    with database.running_server() as server:
        benchmark = import_module(f"benchmarks.{name}")
        parser = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=benchmark.SUMMARY)
        parser.add_argument("--quick", action="store_true", help="small enough for a test: shows that it runs, no more")
        benchmark.add_arguments(parser)
        options = parser.parse_args(sys.argv[2:])
        server.start()
        result = benchmark.measure(options)
    print(result.to_json(), flush=True)
    return 0 if result.ok or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
