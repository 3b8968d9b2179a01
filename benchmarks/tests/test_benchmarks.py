"""Smoke tests: each small benchmark runs with --quick and prints its result line; goals are not asserted."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.__main__ import NAMES
from benchmarks.question_sets import LICENCES, SHARED
from benchmarks.report import percentile
from benchmarks.statutes import plan_laws
from benchmarks.subprocesses import ROOT

pytestmark = pytest.mark.slow

# Those whose smallest run costs a few seconds; people run the others with --quick.
SMALL = ("chunking", "commit", "recall", "success")
ABSENT = f"are not in {SHARED} or {LICENCES}."
COMMAND = [sys.executable, "-m", "benchmarks"]


Run = subprocess.CompletedProcess[str]


WRITE_TEMPLATE = """
import pathlib, sys
from benchmarks import database
with database.running_server() as server:
    server.start()
    server.write_template(pathlib.Path(sys.argv[1]))
"""


def quick(name: str, template: Path) -> Run:
    environment = os.environ | {"BENCHMARKS_TEMPLATE": str(template)}
    return subprocess.run(
        [*COMMAND, name, "--quick"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the data of a migrated server; each benchmark starts a server of its own from a copy."""
    path = tmp_path_factory.mktemp("benchmarks") / "postgres"
    subprocess.run([sys.executable, "-c", WRITE_TEMPLATE, path], cwd=ROOT, check=True, timeout=300)
    return path


@pytest.fixture(scope="module")
def runs(template: Path) -> Iterator[dict[str, Future[Run]]]:
    """All of them, two at a time: each waits more than it works, and what it measures here nobody reads."""
    with ThreadPoolExecutor(2) as pool:
        yield {name: pool.submit(quick, name, template) for name in SMALL}


@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_prints_one_line_with_what_was_promised(name: str, runs: dict[str, Future[Run]]) -> None:
    run = runs[name].result()

    if run.stderr.rstrip().endswith(ABSENT):
        pytest.skip("The documents of other authors are not on this machine.")
    assert run.returncode == 0, run.stderr
    (line,) = run.stdout.splitlines()
    fields = json.loads(line)
    assert {"name", "value", "unit", "against", "ratio", "goal", "ok"} <= set(fields)
    assert fields["name"] == name
    assert fields["value"] > 0
    assert fields["ratio"] > 0


def test_without_a_name_the_benchmarks_are_listed() -> None:
    run = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert run.stdout.split() == list(NAMES)


def test_an_unknown_name_is_refused() -> None:
    run = subprocess.run([*COMMAND, "nonsense"], cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert run.returncode == 2
    assert not run.stdout


@pytest.mark.parametrize("laws", [0, 6, 7, 9])
def test_a_worker_is_given_laws_beyond_those_that_are_timed(laws: int) -> None:
    first, timed, rest = plan_laws(rounds=2, laws=laws)

    assert len(timed) == 6
    assert len(rest) == max(1, laws - 7)
    assert len({first, *timed, *rest}) == 7 + len(rest)


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0], 0.99) == 1.0
