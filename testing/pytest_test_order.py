"""Pytest plugin: slow and long test files first, so that parallel processes end together."""

from collections import Counter
from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)  # whoever sorts within a file, as pytest-django does, has done so
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that say ``slow`` of themselves, then the others, those with most tests first."""
    tests = Counter(item.path for item in items)
    slow = {item.path for item in items if item.get_closest_marker("slow")}

    def place(item: pytest.Item) -> tuple[bool, int, Path]:
        return item.path not in slow, -tests[item.path], item.path

    items.sort(key=place)
