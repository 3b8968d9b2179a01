"""Import direction, sizes and names of modules, and the paths that the guides name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Each may import what stands to its left.
ORDER = (
    "accounts", "jobs", "vendors", "outbox", "documents", "embeddings", "webhooks", "integrations", "statutes",
    "search", "legacy", "metrics", "console", "portal", "accessa",
)  # fmt: skip
TOOLS = ("testing", "benchmarks", "samples")
LONGEST_FILE, LONGEST_FUNCTION = 500, 50
# Gerunds and participles that are nouns of the field.
NOUNS = """
batching billed billing binding branding caching chunking embed embedded embedding encoding feed framing fuzzing heading
highlighting indexing listing locked logging mapping numbering parsing pinning pricing ranking reembed reindexing
rendering reprocessing reranking scheduling setting sharding speed splitting stemming streaming testing throttling
tracing
"""
# Words of closed classes, and irregular participles: alone they name nothing.
PARTICLES = """
about above across after again against ahead along among anew apart around as aside at away back before behind below
beneath beside besides between beyond by down during except for from here in inside into like near next of off on
onto out outside over past since there through till to together toward under until up upon with within without and
but if or so than then when where while what who whom whose which how why whether all any both each either every few
many more most much neither none one other some such that this whatever whoever anybody anyone anything everybody
everyone everything nobody nothing somebody someone something myself ours begun borne bought bound broken brought
built caught chosen come done drawn driven fallen felt found frozen given gone grown had heard held hidden kept
known laid left lent let lost made meant met paid said seen sent shown sold spent spoken stood taken taught thought
thrown told understood won worn written
"""
DOCUMENTS = ("README.md", "CONTRIBUTING.md")
PATH = re.compile(r"`([\w.-]+(?:/[\w.<>-]+)*/?)`|\]\(([\w./-]+)(?:#[\w-]+)?\)")


def modules(*apps: str) -> Iterator[Path]:
    for app in apps:
        for path in sorted((ROOT / app).rglob("*.py")):
            if "tests" not in path.parts and "migrations" not in path.parts:
                yield path


def imported(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the first name of everything that a module imports, inside functions and TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level or (node.module or "").partition(".")[0]


def trespasses(app: str, source: str) -> list[tuple[int, str]]:
    forbidden = {*ORDER[ORDER.index(app) + 1 :], *TOOLS, "conftest"}
    return [(line, name) for line, name in imported(source) if name in forbidden or name.startswith(".")]


@pytest.mark.parametrize("app", ORDER)
def test_an_app_imports_only_apps_to_its_left(app: str) -> None:
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


def is_riddle(name: str) -> bool:
    """Tell whether a module's name ends in a gerund or participle that is no noun, or is no noun at all."""
    last = name.rpartition("_")[2]
    return name in PARTICLES.split() or (re.fullmatch(r"\w+(ing|ed)", last) is not None and last not in NOUNS.split())


def public_names(source: str) -> Iterator[str]:
    """Yield the functions and classes of a module, and the methods of its classes, that have no underscore in front."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    module = [node for node in ast.parse(source).body if isinstance(node, kinds)]
    methods = [
        node for each in module if isinstance(each, ast.ClassDef) for node in each.body if isinstance(node, kinds)
    ]
    yield from (node.name for node in module + methods if not node.name.startswith("_"))


def test_modules_are_called_by_nouns() -> None:
    riddles = [str(path.relative_to(ROOT)) for path in modules(*ORDER, "testing", "benchmarks") if is_riddle(path.stem)]

    assert riddles == []


def test_public_names_are_more_than_a_particle() -> None:
    riddles = {
        f"{path.relative_to(ROOT)}:{name}"
        for path in modules(*ORDER)
        for name in public_names(path.read_text())
        if name.lower() in PARTICLES.split()
    }

    assert riddles == set()


@pytest.mark.parametrize("name", ["enacted", "beside", "feeding", "anew", "told", "signed", "catching"])
def test_the_tests_above_know_a_riddle(name: str) -> None:
    assert is_riddle(name)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_in_the_guides_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    named = [code for code, _ in PATH.findall(text) if "/" in code and (ROOT / code.partition("/")[0]).is_dir()]
    linked = [link for _, link in PATH.findall(text) if link]

    assert named + linked
    assert [path for path in named + linked if not (ROOT / path).exists()] == []
