"""Fixture of a search engine: one server of Milvus Lite a session, started by the first test that needs it."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embeddings.search_engine import milvus_lite, retrieval
from embeddings.search_engine.entries import load_engine
from outbox import queue
from testing.ports import free_port


@pytest.fixture(scope="session")
def milvus_uri() -> Iterator[str]:
    pytest.importorskip("milvus_lite", reason="milvus-lite of requirements/dev.txt is not installed")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, milvus_lite.running_server(Path(folder) / "milvus", port):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def milvus(milvus_uri: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Search by an engine that has nothing yet; yields its module."""
    settings.SEARCH_ENGINE, settings.MILVUS_URI = "milvus", milvus_uri
    monkeypatch.setattr(retrieval, "_paused_until", 0.0)
    engine = load_engine()
    if not engine.is_reachable():
        engine.create_collection()
    yield engine
    settings.MILVUS_URI = milvus_uri
    with engine.connected() as client:
        client.delete(engine._collection(), filter="version > 0")


def feed() -> int:
    """Send what waits for the engine; return how many messages."""
    return queue.send_due(time.monotonic() + 60)
