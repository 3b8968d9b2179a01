"""Statements on Django's connection, their parameters bound by the server, vectors in pgvector's own form."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from django.db import connection
from psycopg import Cursor
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format
from psycopg.rows import namedtuple_row
from psycopg.types import TypeInfo

from embeddings.embedders import DIMENSIONS, Vectors

_HEAD = struct.pack(">hh", DIMENSIONS, 0)  # and an unused half-word


class BinaryVector(bytes):
    """A vector as pgvector sends and receives it. Bind a list of them as ``%(name)b``."""

    __slots__ = ()

    @classmethod
    def encode(cls, row: Vectors) -> BinaryVector:
        return cls(_HEAD + row.astype(">f4").tobytes())


class _WireDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Buffer) -> Buffer:
        return obj


def _know_vectors(raw: Any) -> None:
    """Tell a connection the number of pgvector's type, another in each database: arrays are not sent without it."""
    if not getattr(raw, "accessa_vectors", False):
        found = TypeInfo.fetch(raw, "vector")
        raw.adapters.types.add(found)
        raw.adapters.register_dumper(BinaryVector, type("_VectorDumper", (_WireDumper,), {"oid": found.oid}))
        raw.accessa_vectors = True


def execute(sql: str, params: Mapping[str, Any], *, binary: bool = False) -> list[Any]:
    """Return the rows as named tuples; jsonb comes as text. Raises Django's database errors.

    Prepared on a worker's connection (``jobs.worker``): planning costs as much as running. ``binary`` spares bytes the
    doubling that their text form costs.
    """
    connection.ensure_connection()
    raw = connection.connection
    with connection.wrap_database_errors:
        _know_vectors(raw)
    with connection.wrap_database_errors, Cursor(raw, row_factory=namedtuple_row) as cursor:
        cursor.execute(sql, params, prepare=True, binary=binary)
        return cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else []


def binary_vectors(vectors: Vectors) -> list[BinaryVector]:
    return [BinaryVector.encode(row) for row in np.asarray(vectors)]
