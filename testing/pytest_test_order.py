"""Pytest plugin: the longest test files first, so that parallel processes end together."""

from collections import Counter
from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)  # whoever sorts within a file, as pytest-django does, has done so
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that are slow as a whole, then the others; of each, those with most slow tests, then with most tests."""
    shared = [nodeid for nodeid, count in Counter(item.nodeid for item in items).items() if count > 1]
    if shared:
        raise pytest.UsageError(f"Of the tests that share an id, parallel processes run one: {', '.join(shared)}")
    tests = Counter(item.path for item in items)
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))

    def place(item: pytest.Item) -> tuple[bool, int, int, Path]:
        path = item.path
        return slow[path] < tests[path], -slow[path], -tests[path], path

    items.sort(key=place)
