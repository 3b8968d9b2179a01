"""JSON as the provider sent it: numbers exact, without characters that PostgreSQL cannot store."""

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import orjson

from integrations.records.text_normalization import strip_unstorable

# Each escape is matched whole: in \\u0000 the backslash is escaped, and the rest is text.
_ESCAPE = re.compile(rb"\\(u0000|.)", re.DOTALL)
_DECODER = json.JSONDecoder(parse_float=Decimal)  # once: ``json.loads`` creates one for each call


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
