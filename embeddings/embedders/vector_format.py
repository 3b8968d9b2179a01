"""Vector format: width, normalization, padding and sha256 of the vectors of all models."""

from binascii import b2a_base64
from hashlib import sha256
from typing import Any

import numpy
from numpy.typing import NDArray

DIMENSIONS = 1536

Vectors = NDArray[numpy.float32]


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
    return _sha(numpy.ascontiguousarray(vector, dtype="<f4"))


def vector_shas(array: Vectors) -> list[str]:
    """Return the `vector_sha` of each row."""
    return [_sha(row) for row in numpy.ascontiguousarray(array, dtype="<f4")]


def _sha(row: NDArray[Any]) -> str:
    return sha256(b2a_base64(row.data, newline=False)).hexdigest()
