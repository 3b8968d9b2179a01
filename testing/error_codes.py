"""Which stable codes the source can answer, and which the documentation knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from django.conf import settings

CODE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*")
LED = re.compile(rf"(?:^|: )({CODE.pattern}): ")
LISTED = re.compile(r"`([A-Z][A-Z_0-9]+)`")
STATUS = re.compile(r"\b[1-5]\d\d\b")
NOT_PRODUCT = {"testing", "benchmarks", "samples", "tests", "migrations", "var", ".venv"}
REFUSING = {"ApiError", "Limit", "answerable"}
ENDING = {"Permanent", "Retryable"}
WAITING = {"Wait", "Postponed", "_paused"}
# Parts whose codes are told apart: of connected systems, of laws, and of all else, which is documents.
SYNCS, LAWS, DOCUMENTS = "integrations", "statutes", ""
OTHERS_WORDS = {"THREATS_FOUND"}  # GuardDuty's


def refusals_in_source() -> set[str]:
    """Return the codes of all refusals: those that tenants see, and those of operators' commands and pages."""
    return _first_texts(REFUSING)


def failures_in_source() -> set[str]:
    """Return the codes that a job's ``last_error`` may have."""
    return _first_texts(ENDING, of=DOCUMENTS)


def waits_in_source() -> set[str]:
    """Return the reasons for which a job may wait."""
    return _first_texts(WAITING, of=DOCUMENTS)


def law_failures_in_source() -> set[str]:
    """Return the codes that the ``last_error`` of a law's job may have beside those of every job."""
    tables = _constants(Path(settings.BASE_DIR, "statutes", "refusals.py"))
    return _first_texts(ENDING | {"Unreadable"}, of=LAWS) | tables["REFUSALS"] | tables["ENDED"]


def law_waits_in_source() -> set[str]:
    """Return the reasons for which a law's job, or a consumer, may wait beside those of every job."""
    return _first_texts(WAITING, of=LAWS)


def law_words_in_source() -> set[str]:
    """Return all codes that the source of laws spells, in logs, errors, rows and commands.

    What is spelled alike and is no code: settings, a job's events, and the words of others.
    """
    found = {word for path in _of(LAWS) for node in ast.walk(_tree(path)) for word in _worded(node)}
    found |= _first_texts({"ManifestRefused", "MessageRefused"}, of=LAWS)
    events = _first_texts({"Advance", "advance"}, of=LAWS)
    return {word for word in found - events - OTHERS_WORDS if not hasattr(settings, word)}


def sync_failures_in_source() -> set[str]:
    """Return the codes that connectors themselves end a sync with."""
    return _first_texts({"Permanent", "SourceBroken"}, of=SYNCS)


def page_waits_in_source() -> set[str]:
    """Return the codes for which connectors themselves let a page come again."""
    return _first_texts({"Postponed", "Retryable"}, of=SYNCS)


def record_failures_in_source() -> set[str]:
    """Return the codes that connectors themselves note of single records."""
    return _first_texts({"FailedItem"}, of=SYNCS)


def documented(guide: Path) -> dict[int, set[str]]:
    """Return the codes of the guide's table of refusals, by status."""
    found: dict[int, set[str]] = {}
    table = guide.read_text().partition("\n## Refusals")[2]
    for line in table.splitlines():
        if line.startswith("| ") and (status := STATUS.match(line[2:])):
            found[int(status[0])] = set(LISTED.findall(line))
    return found


def _first_texts(names: set[str], *, of: str | None = None) -> set[str]:
    """Return the codes of calls so named: of one part of the product, or (None) of all."""
    return {code for path in _of(of) for code in _called(path, names)}


def _of(part: str | None) -> list[Path]:
    root = Path(settings.BASE_DIR)
    named = [(path.relative_to(root).parts[0], path) for path in _modules()]
    return [path for app, path in named if part in (None, app if app in (SYNCS, LAWS) else DOCUMENTS)]


def _worded(node: ast.AST) -> Iterator[str]:
    """Yield what is spelled as codes of more than one word are: a text, or what stands before a colon in one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        found = {node.value} if CODE.fullmatch(node.value) else set(LED.findall(node.value))
        yield from (word for word in found if "_" in word)


def _called(path: Path, names: set[str]) -> Iterator[str]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call) and _name(node.func) in names:
            # A refusal's code comes first; transports have a class of that name for what a provider answers.
            given = node.args[:1] if _name(node.func) in ("ApiError", "Limit") else node.args
            for value in (*given, *(keyword.value for keyword in node.keywords)):
                yield from _codes(value, path)
        elif isinstance(node, ast.Tuple) and node.elts and _name(node.elts[0]) in names:  # a table of outcomes
            yield from (code for value in node.elts[1:2] for code in _codes(value, path))


def _codes(value: ast.AST, path: Path) -> Iterator[str]:
    """Yield a code, or those that a constant of this name has: here, where it is from, or else in any module."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str) and CODE.fullmatch(value.value):
        yield value.value
    elif isinstance(value, (ast.Name, ast.Attribute)):
        name = _name(value)
        places = (path, _origin(path, name), None)
        yield from next((found for place in places if (found := _constants(place).get(name))), ())
    elif isinstance(value, ast.IfExp):
        yield from (*_codes(value.body, path), *_codes(value.orelse, path))
    elif isinstance(value, ast.Starred) and isinstance(value.value, ast.Subscript):
        yield from _constants(path).get(_name(value.value.value), ())


def _origin(path: Path, name: str) -> Path | None:
    """Return the module that a name is imported from; None where that is not said by its name."""
    for node in _tree(path).body:
        if isinstance(node, ast.ImportFrom) and node.module and name in {given.name for given in node.names}:
            found = Path(settings.BASE_DIR, *node.module.split(".")).with_suffix(".py")
            return found if found.exists() else None
    return None


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
