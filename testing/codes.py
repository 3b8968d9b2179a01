"""Which stable codes the source can answer, and which the documentation knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from django.conf import settings

CODE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")
LISTED = re.compile(r"`([A-Z][A-Z_0-9]+)`")
STATUS = re.compile(r"\b[1-5]\d\d\b")
NOT_PRODUCT = {"testing", "benchmarks", "samples", "tests", "migrations", "var", ".venv"}
REFUSING = {"Refused", "spend", "answerable"}
ENDING = {"Permanent", "Retryable"}
WAITING = {"Wait", "Postponed", "_paused"}


def refusals_in_source() -> set[str]:
    """Return the codes of all refusals: those that tenants see, and those of operators' commands and pages."""
    return _first_texts(REFUSING)


def failures_in_source() -> set[str]:
    """Return the codes that a job's ``last_error`` may have."""
    return _first_texts(ENDING, of_syncs=False)


def waits_in_source() -> set[str]:
    """Return the reasons for which a job may wait."""
    return _first_texts(WAITING, of_syncs=False)


def sync_failures_in_source() -> set[str]:
    """Return the codes that connectors themselves end a sync with."""
    return _first_texts({"Permanent", "SourceBroken"}, of_syncs=True)


def page_waits_in_source() -> set[str]:
    """Return the codes for which connectors themselves let a page come again."""
    return _first_texts({"Postponed", "Retryable"}, of_syncs=True)


def record_failures_in_source() -> set[str]:
    """Return the codes that connectors themselves note of single records."""
    return _first_texts({"Failed"}, of_syncs=True)


def documented(guide: Path) -> dict[int, set[str]]:
    """Return the codes of the guide's table of refusals, by status."""
    found: dict[int, set[str]] = {}
    table = guide.read_text().partition("\n## Refusals")[2]
    for line in table.splitlines():
        if line.startswith("| ") and (status := STATUS.match(line[2:])):
            found[int(status[0])] = set(LISTED.findall(line))
    return found


def _first_texts(names: set[str], *, of_syncs: bool | None = None) -> set[str]:
    """Return the codes of calls so named: of connectors, of all others, or (None) of both."""
    root = Path(settings.BASE_DIR)
    found = [(path.relative_to(root).parts[0] == "integrations", path) for path in _modules()]
    paths = [path for is_connectors, path in found if of_syncs in (None, is_connectors)]
    return {code for path in paths for code in _called(path, names)}


def _called(path: Path, names: set[str]) -> Iterator[str]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call) and _name(node.func) in names:
            # A refusal's code comes first; transports have a class of that name for what a provider answers.
            given = node.args[:1] if _name(node.func) == "Refused" else node.args
            for value in (*given, *(keyword.value for keyword in node.keywords)):
                yield from _codes(value, path)
        elif isinstance(node, ast.Tuple) and node.elts and _name(node.elts[0]) in names:  # a table of outcomes
            yield from (code for value in node.elts[1:2] for code in _codes(value, path))


def _codes(value: ast.AST, path: Path) -> Iterator[str]:
    """Yield a code, or those that a constant of this name has: here, or else in any module."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str) and CODE.fullmatch(value.value):
        yield value.value
    elif isinstance(value, (ast.Name, ast.Attribute)):
        name = _name(value)
        yield from _constants(path).get(name) or _constants().get(name) or ()
    elif isinstance(value, ast.IfExp):
        yield from (*_codes(value.body, path), *_codes(value.orelse, path))
    elif isinstance(value, ast.Starred) and isinstance(value.value, ast.Subscript):
        yield from _constants(path).get(_name(value.value.value), ())


@lru_cache(maxsize=1_000)
def _constants(only: Path | None = None) -> dict[str, set[str]]:
    """Return the codes that module-level constants hold, by the constants' names; of one module, or of all."""
    found: dict[str, set[str]] = {}
    for path in [only] if only else _modules():
        for node in _tree(path).body:
            if isinstance(node, ast.Assign):
                for target, value in _pairs(node):
                    found.setdefault(target, set()).update(value)
    return found


def _pairs(node: ast.Assign) -> Iterator[tuple[str, set[str]]]:
    target = node.targets[0]
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        named = list(zip(target.elts, node.value.elts, strict=False))
    else:
        named = [(target, node.value)]
    for one, value in named:
        texts = {
            part.value for part in ast.walk(value) if isinstance(part, ast.Constant) and isinstance(part.value, str)
        }
        codes = {text for text in texts if CODE.fullmatch(text)}
        if isinstance(one, ast.Name) and codes:
            yield one.id, codes


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


@lru_cache(maxsize=1)
def _modules() -> tuple[Path, ...]:
    root = Path(settings.BASE_DIR)
    return tuple(path for path in sorted(root.rglob("*.py")) if not NOT_PRODUCT & set(path.relative_to(root).parts))


@lru_cache(maxsize=1_000)
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())
