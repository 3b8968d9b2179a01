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
    violations = {
        str(path.relative_to(ROOT)): bad for path in modules(app) if (bad := trespasses(app, path.read_text()))
    }

    assert violations == {}


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


def test_files_and_functions_are_short() -> None:
    long_files, long_functions = {}, {}
    for path in modules(*ORDER, "testing"):
        source = path.read_text()
        if (lines := source.count("\n")) > LONGEST_FILE:
            long_files[str(path.relative_to(ROOT))] = lines
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if (lines := (node.end_lineno or 0) - node.lineno + 1) > LONGEST_FUNCTION:
                long_functions[f"{path.relative_to(ROOT)}:{node.name}"] = lines

    assert (long_files, long_functions) == ({}, {})
