"""docs/specs.md: every section of the five specs has rows, and every test that a row names exists."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)
ROW = re.compile(r"\| (?P<section>.+?) \| (?P<requirement>.+?) \| (?P<state>.+?) \| (?P<tests>.+?) \|")
TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
SECTIONS = {
    "MVP context (v0.3)": [str(number) for number in range(16)],
    "RFC001": [
        "Context", "Architecture", "Data flow", "Schema", "Decisions", "Storage", "Worker", "Security", "API",
        "Performance", "Observability", "Legacy", "Phases", "Risks", "Testing", "Alternatives", "Next steps",
        "Legacy reference", "Context reference",
    ],
    "Context 002 (v1.0)": [
        "0", "1", "2", *(f"2.{number}" for number in range(1, 8)), "3", "4", *(f"4.{number}" for number in range(1, 6)),
        *(str(number) for number in range(5, 17)),
    ],
    "Spec 002: ingestion worker (PRD step 7)": [
        "Goal", "1", "2", "3", "4", "5", "6a", "6b", "6c", "7", "8", "9", "D1", "D2", "D3", "D4", "D5",
    ],
    "Spec 004: EC2 worker lifecycle": [
        "1", "2", "3.1", "3.2", "3.3", "3.4", *(f"4.{number}" for number in range(1, 9)), "5.1", "5.2",
    ],
}  # fmt: skip


@cache
def table() -> dict[str, list[dict[str, str]]]:
    """Return the rows of docs/specs.md by heading."""
    _, *parts = re.split(r"^## ", (ROOT / "docs" / "specs.md").read_text(), flags=re.MULTILINE)
    return {
        title.strip(): [match.groupdict() for line in body.splitlines() if (match := ROW.fullmatch(line))][1:]
        for title, _, body in (part.partition("\n") for part in parts)
    }


@cache
def functions_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("spec", SECTIONS)
def test_every_section_of_a_spec_has_rows_in_its_order(spec: str) -> None:
    assert list(dict.fromkeys(row["section"] for row in table()[spec])) == SECTIONS[spec]


@pytest.mark.parametrize("spec", SECTIONS)
def test_a_row_says_works_deviates_or_settled_with_its_reason(spec: str) -> None:
    for row in table()[spec]:
        assert re.match(r"works\b|(deviates|settled): .", row["state"]), row
        if row["tests"] == "—":
            assert not row["state"].startswith("works"), row


@pytest.mark.parametrize("spec", SECTIONS)
def test_every_named_test_exists(spec: str) -> None:
    named = [match for row in table()[spec] for match in TEST.findall(row["tests"])]

    assert named
    assert [(path, name) for path, name in named if not (ROOT / path).exists() or name not in functions_in(path)] == []


def test_nothing_else_than_tests_is_named() -> None:
    for rows in table().values():
        for row in rows:
            assert row["tests"] == "—" or row["tests"] == ", ".join(
                f"`{a}::{b}`" for a, b in TEST.findall(row["tests"])
            )


def test_the_summary_counts_the_rows() -> None:
    rows = [row for part in table().values() for row in part]
    counts = {word: sum(row["state"].startswith(word) for row in rows) for word in ("works", "settled", "deviates")}

    summary = ", ".join(f"{count} {word}" for word, count in counts.items())
    assert f"{len(rows)} rows: {summary}." in (ROOT / "docs" / "specs.md").read_text()
