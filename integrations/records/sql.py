"""Raw SQL on Django's connection: server-side binding, binary vectors, arrays of rows, exact JSON for jsonb."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
from django.db import connection
from psycopg import Cursor
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format
from psycopg.rows import namedtuple_row
from psycopg.types import TypeInfo

from embeddings.embedders import DIMENSIONS, Vectors
from integrations.records.text import strip_unstorable

_HEAD = struct.pack(">hh", DIMENSIONS, 0)  # and an unused half-word
# Each escape is matched whole: in \\u0000 the backslash is escaped, and the rest is text.
_ESCAPE = re.compile(rb"\\(u0000|.)", re.DOTALL)
_DECODER = json.JSONDecoder(parse_float=Decimal)  # once: ``json.loads`` creates one for each call


class BinaryVector(bytes):
    """A vector in pgvector's binary format. Bind a list of them as ``%(name)b``."""

    __slots__ = ()

    @classmethod
    def encode(cls, row: Vectors) -> BinaryVector:
        return cls(_HEAD + row.astype(">f4").tobytes())


class _VectorDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Buffer) -> Buffer:
        return obj


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
            raw.adapters.register_dumper(BinaryVector, type("_VectorDumper", (_VectorDumper,), {"oid": vector.oid}))
            raw.accessa_vectors = True
        with Cursor(raw, row_factory=namedtuple_row) as cursor:
            cursor.execute(sql, params, prepare=True, binary=binary)
            return cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else []


def binary_vectors(vectors: Vectors) -> list[BinaryVector]:
    return [BinaryVector.encode(row) for row in np.asarray(vectors)]


# --- rows as parameters of one statement: an array for each column, types by column ---------------------------------
def unnest_rows(types: Mapping[str, str]) -> str:
    """Return the rows as a table ``sent``, jsonb as text still. Its parameters are bound in binary format."""
    arrays = (f"%({name})b::{'text' if type == 'jsonb' else type}[]" for name, type in types.items())
    return f"unnest({', '.join(arrays)}) sent ({', '.join(types)})"


def cast_columns(types: Mapping[str, str]) -> str:
    """Return the columns to select from ``unnest_rows``; jsonb arrives as text, already written as JSON."""
    return ", ".join(f"{name}::jsonb" if type == "jsonb" else name for name, type in types.items())


def column_arrays(types: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the parameters."""
    return {name: [row[name] for row in rows] for name in types}


# --- JSON as the provider sent it, numbers exact --------------------------------------------------------------------
def dump_json(payload: Mapping[str, Any]) -> str:
    """Return JSON for a jsonb column, without NULs and lone surrogates, Decimals as numbers.

    Raises ``ValueError`` for what is no JSON.
    """
    try:
        return _without_nuls(orjson.dumps(payload, default=_encode)).decode()
    except TypeError:  # a lone surrogate, or an integer beyond 64 bits: rare, and slow to look for
        pass
    try:
        return _without_nuls(orjson.dumps(_storable(payload), default=_encode)).decode()
    except (TypeError, RecursionError):
        raise ValueError("not JSON") from None


def load_json(text: str) -> Any:
    """Return the content of a jsonb column, numbers with a point as ``Decimal``."""
    return _DECODER.decode(text)


def _encode(node: Any) -> Any:
    if isinstance(node, Decimal) and node.is_finite():
        return orjson.Fragment(str(node))
    if isinstance(node, Mapping):
        return dict(node)
    raise TypeError


def _without_nuls(document: bytes) -> bytes:
    if b"\\u0000" not in document:
        return document
    return _ESCAPE.sub(lambda escape: b"" if escape[1] == b"u0000" else escape[0], document)


def _storable(node: Any) -> Any:
    if isinstance(node, str):
        return strip_unstorable(node)
    if isinstance(node, Mapping):
        return {_storable(name) if isinstance(name, str) else name: _storable(child) for name, child in node.items()}
    if isinstance(node, list | tuple):
        return [_storable(child) for child in node]
    if isinstance(node, int) and not isinstance(node, bool) and abs(node) >= 2**63:
        return Decimal(node)
    return node
