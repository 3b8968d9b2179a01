"""Tests of the order of test files."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testing.pytest_test_order import pytest_collection_modifyitems


def make_item(file: str, name: str, *, slow: bool = False) -> Any:
    nodeid = f"{file}::{name}"
    return SimpleNamespace(
        path=Path(file), name=name, nodeid=nodeid, get_closest_marker=lambda asked: slow and asked == "slow"
    )


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


def test_tests_that_share_an_id_are_refused() -> None:
    with pytest.raises(pytest.UsageError, match="few"):
        pytest_collection_modifyitems([make_item("few.py", "a"), make_item("few.py", "b"), make_item("few.py", "a")])
