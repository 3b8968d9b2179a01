"""Fixture of a search engine: one server of Milvus Lite a session, started by the first test that needs it."""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from embeddings.search_engine import milvus_lite, retrieval
from embeddings.search_engine.entries import load_engine
from outbox import queue
from testing.ports import free_port


class Server(NamedTuple):
    uri: str
    process: subprocess.Popen[bytes]


@pytest.fixture(scope="session")
def milvus_server() -> Iterator[Server]:
    if find_spec("milvus_lite") is None:  # importing it takes seconds
        pytest.skip("milvus-lite of requirements/dev.txt is not installed")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, milvus_lite.running_server(Path(folder) / "milvus", port) as process:
        yield Server(f"http://127.0.0.1:{port}", process)


@pytest.fixture
def milvus(milvus_server: Server, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Search by an engine that has nothing yet; yields its module."""
    settings.SEARCH_ENGINE, settings.MILVUS_URI = "milvus", milvus_server.uri
    monkeypatch.setattr(retrieval, "_paused_until", 0.0)
    engine = load_engine()
    monkeypatch.setattr(engine, "SEARCH_SECONDS", 60.0)  # a busy machine is no engine that is away
    if not engine.is_reachable():
        engine.create_collection()
    yield engine
    settings.MILVUS_URI = milvus_server.uri
    with engine.connected() as client:
        client.delete(engine.collection_name(), filter="version > 0")


def feed() -> int:
    """Send what waits for the engine; return how many messages."""
    return queue.send_due(time.monotonic() + 60)
