"""Turning texts into vectors: one face, one module a model."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Protocol

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from embeddings.embedders.vector_format import DIMENSIONS, Vectors, vector_sha, vector_shas

__all__ = [
    "DIMENSIONS",
    "Embedder",
    "Vectors",
    "configured_embedders",
    "find_embedder",
    "get_embedder",
    "known",
    "vector_sha",
    "vector_shas",
]

EMBEDDERS = {
    "local": "embeddings.embedders.wordllama.WordLlama",
    "minilm": "embeddings.embedders.minilm.MiniLM",
    "openai": "embeddings.embedders.openai.OpenAI",
    "remote": "embeddings.embedders.peer.PeerEmbedder",
    "titan": "embeddings.embedders.titan.Titan",
}


class Embedder(Protocol):
    """A model. Making one is cheap: whatever it must load, it loads at the first `embed`.

    One that somebody else runs, and may want money for, is a `hosted.Hosted`.
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
        """Float32 of shape (len(texts), 1536): finite, each row of length one, rows in the order of `texts`.

        Here, the same text gives the same bytes, whatever it is embedded together with; vendors promise no such thing.
        """
        ...


@cache
def get_embedder(name: str) -> Embedder:
    """The embedder called `name` (one of `NAMES` or a dotted path to a class), one a process."""
    try:
        return _made(EMBEDDERS.get(name, name))
    except ImportError as error:
        raise ImproperlyConfigured(
            f"There is no embedder {name!r}: use one of {', '.join(sorted(EMBEDDERS))}, or the dotted path of a class "
            f"({error})."
        ) from error


def configured_embedders() -> Iterator[Embedder]:
    """Every embedder that this deployment can ask, the one that EMBEDDER names first."""
    for name in dict.fromkeys((settings.EMBEDDER, *settings.EMBEDDERS_OF.values(), *EMBEDDERS)):
        embedder = get_embedder(name)
        with suppress(ImproperlyConfigured):  # a vendor without its key or address
            _ = embedder.model, getattr(embedder, "vendor", None)
            if getattr(embedder, "installed", True):
                yield embedder


def find_embedder(model: str, version: str) -> Embedder | None:
    """The embedder that makes this model's vectors, if this deployment can ask it."""
    return next((each for each in configured_embedders() if (each.model, each.version) == (model, version)), None)


def _made(path: str) -> Embedder:
    embedder: Embedder = import_string(path)()
    return embedder
