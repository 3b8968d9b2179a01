"""Embedders: the interface of all embedding models, and the registry of those in this package."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Protocol

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from embeddings.embedders.vector_format import DIMENSIONS, Vectors, vector_sha, vector_shas

__all__ = [
    "DIMENSIONS", "Embedder", "Vectors", "configured_embedders", "find_embedder", "get_embedder", "vector_sha",
    "vector_shas",
]  # fmt: skip

EMBEDDERS = {
    "local": "embeddings.embedders.wordllama.WordLlama",
    "minilm": "embeddings.embedders.minilm.MiniLM",
    "openai": "embeddings.embedders.openai.OpenAI",
    "remote": "embeddings.embedders.peer.PeerEmbedder",
    "titan": "embeddings.embedders.titan.Titan",
}


class Embedder(Protocol):
    """An embedding model. Creating one is cheap: weights are loaded at the first `embed`.

    A vendor's model is an `http_base.HttpEmbedder`.
    """

    @property
    def model(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def batch_size(self) -> int:
        """At most 256, the specs' micro-batch."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return float32 of shape (len(texts), 1536): finite unit rows in the order of `texts`.

        Local models give the same bytes for the same text, whatever the rest of the batch; vendors do not promise it.
        """
        ...


@cache
def get_embedder(name: str) -> Embedder:
    """Return the embedder called `name` (one of `EMBEDDERS` or the dotted path of a class), one instance a process."""
    try:
        embedder: Embedder = import_string(EMBEDDERS.get(name, name))()
    except ImportError as error:
        raise ImproperlyConfigured(
            f"There is no embedder {name!r}: use one of {', '.join(sorted(EMBEDDERS))}, or the dotted path of a class "
            f"({error})."
        ) from error
    return embedder


def configured_embedders() -> Iterator[Embedder]:
    """Yield the embedders that are configured here, the one that EMBEDDER names first."""
    for name in dict.fromkeys((settings.EMBEDDER, *settings.EMBEDDERS_OF.values(), *EMBEDDERS)):
        embedder = get_embedder(name)
        with suppress(ImproperlyConfigured):  # a vendor without its key or address
            _ = embedder.model, getattr(embedder, "vendor", None)
            if getattr(embedder, "installed", True):
                yield embedder


def find_embedder(model: str, version: str) -> Embedder | None:
    """Return the configured embedder of this model, or None."""
    return next((each for each in configured_embedders() if (each.model, each.version) == (model, version)), None)
