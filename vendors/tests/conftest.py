"""A vendor, and a key of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from vendors.tests.http_helpers import Server, serving
from vendors.vendor import Vendor


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def vendor() -> Vendor:
    return Vendor("openai", "sk-secret", requests_per_minute=600, tokens_per_minute=60_000)
