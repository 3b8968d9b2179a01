"""Embedder that records its calls, and refuses or waits when a test says so."""

from collections.abc import Sequence

from embeddings.embedders.registry import Vectors
from jobs.outcomes import Wait
from testing.embedders import InstantEmbedder
from testing.error_codes import error_code
from vendors.calls import VendorRefused


class SpyEmbedder(InstantEmbedder):
    model = "remembering"

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.calls: list[list[str]] = []
        self.poison: str | None = None
        self.calls_left: int | None = None

    @property
    def texts(self) -> list[str]:
        return [text for call in self.calls for text in call]

    def embed(self, texts: Sequence[str]) -> Vectors:
        if self.calls_left == 0:
            raise Wait(60, error_code("BUDGET_SPENT"))
        if self.poison and any(self.poison in text for text in texts):
            raise VendorRefused(400, None)
        if self.calls_left is not None:
            self.calls_left -= 1
        self.calls.append(list(texts))
        return super().embed(texts)
