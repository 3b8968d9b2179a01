"""Tests of the order of test files."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from testing.pytest_test_order import pytest_collection_modifyitems


def make_item(file: str, name: str, *, slow: bool = False) -> Any:
    return SimpleNamespace(path=Path(file), name=name, get_closest_marker=lambda asked: slow and asked == "slow")


def test_slow_files_are_begun_first_then_those_with_most_tests_and_each_keeps_its_own_order() -> None:
    items = [
        make_item("few.py", "a"),
        make_item("many.py", "z"),
        make_item("many.py", "b"),
        make_item("slow.py", "y", slow=True),
        make_item("many.py", "a"),
        make_item("slow.py", "x", slow=True),
    ]

    pytest_collection_modifyitems(items)

    assert [(item.path.stem, item.name) for item in items] == [
        ("slow", "y"), ("slow", "x"), ("many", "z"), ("many", "b"), ("many", "a"), ("few", "a"),
    ]  # fmt: skip
