"""Base class of vendors' embedders: one HTTP call, its price, and validation of the response."""

import binascii
import json
import time
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar

import numpy

from embeddings.embedders.registry import DIMENSIONS, Vectors, unit
from vendors.call_failures import InvalidResponse
from vendors.vendor_account import Vendor

CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class EmbedResponse:
    """Vectors of one call. ``tokens`` is None where the vendor names none."""

    vectors: Vectors
    tokens: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


NO_SLOT: AbstractContextManager[object] = nullcontext()


class HttpEmbedder(ABC):
    """A vendor's model. ``is_billed``: its calls cost money, and each is a purchase."""

    version = "1"
    batch_size = 256
    is_billed: ClassVar[bool] = True

    @property
    @abstractmethod
    def model(self) -> str: ...

    @property
    @abstractmethod
    def vendor(self) -> Vendor: ...

    @abstractmethod
    def cents(self, tokens: int) -> Decimal:
        """Return the price of embedding ``tokens``."""

    @abstractmethod
    def call(self, texts: Sequence[str], *, slot: AbstractContextManager[object] = NO_SLOT) -> EmbedResponse:
        """Make one call, without retries, rate limit or ledger. Uses no database: it may run in any thread.

        ``slot`` is held while the call is in flight, and released before the response is decoded.

        Raises what its client raises, ``TimeoutError`` past the deadline, and ``InvalidResponse`` for a response with
        any fault: nothing of it is used.
        """

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed without a bill; ``embedding_calls`` bills a user or a campaign."""
        return self.call(texts).vectors if texts else numpy.zeros((0, DIMENSIONS), dtype=numpy.float32)


def read_body(pieces: Iterable[bytes], deadline: float, *, most: int | None = None) -> bytes:
    """Join a body; raise ``TimeoutError`` past the deadline: a client's own timeout is only for the next piece.

    Raise ``InvalidResponse`` for one of more than ``most`` bytes.
    """
    body = bytearray()
    for piece in pieces:
        body += piece
        if time.monotonic() > deadline:
            raise TimeoutError("The response did not end in time.")
        if most is not None and len(body) > most:
            raise InvalidResponse("The response is too long.")
    return bytes(body)


def parse_json(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise InvalidResponse("The answer is not JSON.") from None  # the error itself would keep the whole body
    if not isinstance(body, dict):
        raise InvalidResponse("The answer is not a JSON object.")
    return body


def validate_vectors(rows: object, count: int) -> Vectors:
    """Return vectors, base64 of little-endian float32 or lists of numbers, as ``count`` unit rows."""
    if not isinstance(rows, list) or len(rows) != count:
        raise InvalidResponse("The answer does not have a vector for each text.")
    vectors = numpy.empty((count, DIMENSIONS), dtype=numpy.float32)
    for at, row in enumerate(rows):
        vectors[at] = _parse_row(row)
    if not numpy.isfinite(vectors).all():
        raise InvalidResponse("A vector has a number that is not finite.")
    if not vectors.any(axis=1).all():
        raise InvalidResponse("A vector has no length.")
    return unit(vectors)


def _parse_row(row: object) -> Vectors:
    try:
        with numpy.errstate(over="ignore"):  # too large for float32 is infinite, and refused as that
            numbers = (
                numpy.frombuffer(b64decode(row, validate=True), dtype="<f4")
                if isinstance(row, str)
                else numpy.array(row, dtype=numpy.float32)
            )
    except (binascii.Error, ValueError, TypeError, OverflowError):
        raise InvalidResponse("A vector cannot be read.") from None
    if numbers.shape != (DIMENSIONS,):
        raise InvalidResponse(f"A vector is not {DIMENSIONS} wide.")
    return numbers
