"""A vendor of vectors on 127.0.0.1, and the settings that lead there."""

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from embeddings.embedders import openai
from testing.fakes.http_messages import Request, Response
from testing.fakes.openai import KEY, OpenAIServer


class RecordingOpenAIServer(OpenAIServer):
    """Sees how many calls it has in hand at once, and how large each is."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._seen = threading.Condition()
        self.hold_until = 0  # so many calls have been in hand at once, none is answered before
        self.in_hand = self.most_in_hand = 0
        self.sizes: list[int] = []
        self.tokens: list[int] = []

    def respond(self, request: Request) -> Response:
        with self._seen:
            self.in_hand += 1
            self.most_in_hand = max(self.most_in_hand, self.in_hand)
            self._seen.notify_all()
            self._seen.wait_for(lambda: self.most_in_hand >= self.hold_until, timeout=4)
        try:
            return super().respond(request)
        finally:
            with self._seen:
                self.in_hand -= 1

    def _counted(self, texts: list[str]) -> list[int]:
        self.sizes.append(len(texts))
        counts = super()._counted(texts)
        self.tokens.append(sum(counts))
        return counts


@pytest.fixture
def vendor(settings: Any) -> Iterator[RecordingOpenAIServer]:
    with RecordingOpenAIServer() as server:
        settings.EMBEDDER = "openai"
        settings.OPENAI_API_KEY = KEY
        settings.OPENAI_BASE_URL = server.url
        settings.OPENAI_REQUESTS_PER_MINUTE = settings.OPENAI_TOKENS_PER_MINUTE = 0
        settings.VENDOR_TIMEOUT_SECONDS = 5.0
        settings.VENDOR_BREAKER_FAULTS = 100  # the breaker has tests of its own
        yield server
        openai._client(KEY, server.url, settings.VENDOR_TIMEOUT_SECONDS, os.getpid()).close()
        openai._client.cache_clear()
