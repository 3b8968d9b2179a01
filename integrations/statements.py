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

from embeddings.embedders import DIMENSIONS, Vectors

_HEAD = struct.pack(">hh", DIMENSIONS, 0)  # and an unused half-word


class Wire(bytes):
    """A vector as pgvector sends and receives it. Cast it in the statement: its type has no fixed number."""

    __slots__ = ()

    @classmethod
    def of(cls, row: Vectors) -> Wire:
        return cls(_HEAD + row.astype(">f4").tobytes())


class _WireDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Buffer) -> Buffer:
        return obj


def execute(sql: str, params: Mapping[str, Any], *, binary: bool = False) -> list[Any]:
    """Return the rows as named tuples; jsonb comes as text. Raises Django's database errors.

    Prepared on a worker's connection (``jobs.runner``): planning costs as much as running. ``binary`` spares bytes the
    doubling that their text form costs.
    """
    connection.ensure_connection()
    raw = connection.connection
    with connection.wrap_database_errors, Cursor(raw, row_factory=namedtuple_row) as cursor:
        cursor.adapters.register_dumper(Wire, _WireDumper)
        cursor.execute(sql, params, prepare=True, binary=binary)
        return cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else []


def unit_rows(vectors: Vectors) -> list[Wire]:
    return [Wire.of(row) for row in np.asarray(vectors)]
