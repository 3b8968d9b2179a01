"""Fixtures: a fake vendor's server and a vendor account."""

from collections.abc import Iterator

import pytest

from vendors.tests.http_server import Server, running_server
from vendors.vendor_account import Vendor


@pytest.fixture
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def vendor() -> Vendor:
    return Vendor("openai", "sk-secret", requests_per_minute=600, tokens_per_minute=60_000)
