"""Two tenants whose passages are found with one model, and another model to move them to."""

import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from embeddings.embedders import openai
from embeddings.reindexing import periodic
from jobs import worker
from testing.factories.pending_documents import create_chunked_job, passage_texts
from testing.fakes.openai import KEY, OpenAIServer

OLD, NEW = "testing.embedders.InstantEmbedder", "local"
OLD_MODEL: dict[str, Any] = {"model": "instant", "version": "1"}
MODEL: dict[str, Any] = {"model": "wordllama-l2-supercat-256-padded", "version": "1"}
HOSTED: dict[str, Any] = {"model": "text-embedding-3-small", "version": "1"}

Fill = Callable[..., UUID]


@pytest.fixture(autouse=True)
def old_model(settings: Any) -> None:
    settings.EMBEDDER = OLD


@pytest.fixture
def fill_tenant(db: None) -> Fill:
    """Return a tenant with so many documents of so many passages each, all of which are found."""

    def fill(documents: int = 2, passages: int = 3, *, user_id: UUID | None = None) -> UUID:
        owner = user_id or uuid.uuid4()
        for _ in range(documents):
            create_chunked_job(passage_texts(passages, about=uuid.uuid4()), user_id=owner)
        drain()
        return owner

    return fill


@pytest.fixture
def vendor(settings: Any) -> Iterator[OpenAIServer]:
    """Run the vendor of ``HOSTED``, at a price at which a passage costs cents."""
    with OpenAIServer() as server:
        settings.OPENAI_API_KEY, settings.OPENAI_BASE_URL = KEY, server.url
        settings.OPENAI_REQUESTS_PER_MINUTE = settings.OPENAI_TOKENS_PER_MINUTE = 0
        settings.OPENAI_CENTS_PER_MILLION_TOKENS = 10_000.0
        settings.VENDOR_TIMEOUT_SECONDS = 5.0
        yield server
        openai._client(KEY, server.url, settings.VENDOR_TIMEOUT_SECONDS, os.getpid()).close()
        openai._client.cache_clear()


def drain() -> None:
    """Let a worker do what is due."""
    while worker.drain():
        pass


def run_campaigns(rounds: int = 3) -> None:
    """Let the workers and the sweep do all that they can do now."""
    for _ in range(rounds):
        drain()
        periodic.advance_campaigns()


def has_lock_waiter() -> bool:
    """Tell whether somebody waits for a row that another transaction holds."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple')")
        return bool(cursor.fetchone()[0])
