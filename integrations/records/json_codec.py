"""Providers' JSON on its way into jsonb and out of it: as it was told, numbers exact."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import orjson

from integrations.records.text import strip_unstorable

# Each escape is read whole: in \\u0000 the backslash is escaped, and the rest is text.
_ESCAPE = re.compile(rb"\\(u0000|.)", re.DOTALL)
_LARGE = 2**63
_DECODER = json.JSONDecoder(parse_float=Decimal)  # once: ``json.loads`` makes one for each call


def dump_json(told: Mapping[str, Any]) -> str:
    """Return JSON for a jsonb column, without NULs and half characters, Decimals as numbers.

    Raises ``ValueError`` for what is no JSON.
    """
    try:
        return _without_nuls(orjson.dumps(told, default=_exact)).decode()
    except TypeError:  # a half character, or an integer beyond 64 bits: rare, and slower to tell
        pass
    try:
        return _without_nuls(orjson.dumps(_storable(told), default=_exact)).decode()
    except (TypeError, RecursionError):
        raise ValueError("not JSON") from None


def load_json(stored: str) -> Any:
    """Return what a jsonb column holds, numbers with a point as ``Decimal``."""
    return _DECODER.decode(stored)


def _exact(value: Any) -> Any:
    if isinstance(value, Decimal) and value.is_finite():
        return orjson.Fragment(str(value))
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError


def _without_nuls(written: bytes) -> bytes:
    if b"\\u0000" not in written:
        return written
    return _ESCAPE.sub(lambda found: b"" if found[1] == b"u0000" else found[0], written)


def _storable(told: Any) -> Any:
    if isinstance(told, str):
        return strip_unstorable(told)
    if isinstance(told, Mapping):
        return {_storable(name): _storable(value) for name, value in told.items()}
    if isinstance(told, list | tuple):
        return [_storable(value) for value in told]
    if isinstance(told, int) and not isinstance(told, bool) and abs(told) >= _LARGE:
        return Decimal(told)
    return told
