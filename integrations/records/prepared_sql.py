"""Bulk SQL on Django's connection: prepared statements, binary vectors, rows as arrays of columns."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from django.db import connection
from psycopg import Cursor
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.rows import namedtuple_row
from psycopg.types import TypeInfo

from embeddings.embedders.registry import DIMENSIONS, Vectors

_HEAD = struct.pack(">hh", DIMENSIONS, 0)  # and an unused half-word


class BinaryVector(bytes):
    """A vector in pgvector's binary format. Bind a list of them as ``%(name)b``."""

    __slots__ = ()


def execute(sql: str, params: Mapping[str, Any], *, binary: bool = False) -> list[Any]:
    """Return the rows as named tuples; jsonb comes as text. Raises Django's database errors.

    Prepared on a worker's connection (``jobs.worker``): planning costs as much as running. ``binary`` halves the bytes
    of a bytea compared with its text format.
    """
    connection.ensure_connection()
    raw: Any = connection.connection
    with connection.wrap_database_errors:
        if not getattr(raw, "accessa_vectors", False):
            # The oid of pgvector's type is another in each database: arrays are not sent without it.
            vector = TypeInfo.fetch(raw, "vector")
            raw.adapters.types.add(vector)
            members = {"format": Format.BINARY, "oid": vector.oid, "dump": lambda self, vector: vector}
            raw.adapters.register_dumper(BinaryVector, type("VectorDumper", (Dumper,), members))
            raw.accessa_vectors = True
        with Cursor(raw, row_factory=namedtuple_row) as cursor:
            cursor.execute(sql, params, prepare=True, binary=binary)
            return cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else []


def binary_vectors(vectors: Vectors) -> list[BinaryVector]:
    return [BinaryVector(_HEAD + row.astype(">f4").tobytes()) for row in np.asarray(vectors)]


# --- rows as parameters of one statement: an array for each column, types by column ---------------------------------
def unnest_rows(types: Mapping[str, str]) -> str:
    """Return the rows as a table ``sent``, jsonb as text still. Its parameters are bound in binary format."""
    arrays = (f"%({name})b::{'text' if type == 'jsonb' else type}[]" for name, type in types.items())
    return f"unnest({', '.join(arrays)}) sent ({', '.join(types)})"


def cast_columns(types: Mapping[str, str]) -> str:
    """Return the columns to select from ``unnest_rows``; jsonb arrives as text, already written as JSON."""
    return ", ".join(f"{name}::jsonb" if type == "jsonb" else name for name, type in types.items())


def column_arrays(types: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in types}
