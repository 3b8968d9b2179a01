"""Rows as parameters of one statement: an array for each column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Types = Mapping[str, str]  # PostgreSQL's, by column


def unnest_rows(types: Types) -> str:
    """Return the rows as a table ``told``, jsonb as text still. Its parameters are bound in binary form."""
    return (
        f"unnest({', '.join(f'%({name})b::{_sent(type)}[]' for name, type in types.items())}) told ({', '.join(types)})"
    )


def cast_columns(types: Types) -> str:
    """Return what to select from ``unnested``."""
    return ", ".join(name if _sent(type) == type else f"{name}::{type}" for name, type in types.items())


def column_arrays(types: Types, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the parameters."""
    return {name: [row[name] for row in rows] for name in types}


def _sent(type: str) -> str:
    return "text" if type == "jsonb" else type  # as JSON is written already
