"""Imports go one way (DESIGN §2), files and functions stay readable (STYLE)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Each may import what stands to its left.
ORDER = (
    "accounts", "jobs", "vendors", "documents", "embeddings", "webhooks", "integrations", "statutes", "search",
    "metrics", "console", "portal", "accessa",
)  # fmt: skip
TOOLS = ("testing", "benchmarks", "samples")
LONGEST_FILE, LONGEST_FUNCTION = 500, 50


def modules(*apps: str) -> Iterator[Path]:
    for app in apps:
        for path in sorted((ROOT / app).rglob("*.py")):
            if "tests" not in path.parts and "migrations" not in path.parts:
                yield path


def imported(source: str) -> Iterator[tuple[int, str]]:
    """The first name of everything that a module imports, inside functions and TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level or (node.module or "").partition(".")[0]


def trespasses(app: str, source: str) -> list[tuple[int, str]]:
    forbidden = {*ORDER[ORDER.index(app) + 1 :], *TOOLS, "conftest"}
    return [(line, name) for line, name in imported(source) if name in forbidden or name.startswith(".")]


@pytest.mark.parametrize("app", ORDER)
def test_an_app_imports_only_what_stands_to_its_left(app: str) -> None:
    found = {str(path.relative_to(ROOT)): bad for path in modules(app) if (bad := trespasses(app, path.read_text()))}

    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "import documents",
        "from documents.models import Document",
        "import testing.pdfs",
        "from . import models",
        "def f():\n    import accessa.urls",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from embeddings import search",
    ],
)
def test_the_test_above_sees_every_kind_of_import(source: str) -> None:
    assert trespasses("jobs", source)


def test_a_migration_depends_only_on_apps_to_its_left() -> None:
    # `jobs` names documents.Document, the one exception that DESIGN §5 grants, and `documents` follows jobs' rows.
    for app in ("accounts", "embeddings"):
        for path in (ROOT / app / "migrations").glob("*.py"):
            assert trespasses(app, path.read_text()) == []


@pytest.mark.parametrize("path", list(modules(*ORDER, "testing")), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short(path: Path) -> None:
    source = path.read_text()
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    lengths = {function.name: (function.end_lineno or 0) - function.lineno + 1 for function in functions}

    assert len(source.splitlines()) <= LONGEST_FILE
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}
