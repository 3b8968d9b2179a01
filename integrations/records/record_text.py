"""Normalization of records: searchable text and its hash, and JSON without what PostgreSQL cannot store."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from typing import Any, Self

import orjson

from embeddings import tokenizer

# The limit of OpenAI's models, and of another deployment's /internal/embed.
MOST_TOKENS, MOST_CHARS = 8_191, 32_000

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]+")  # PostgreSQL stores neither NULs nor lone surrogates
_SPACES = re.compile(r"[^\S\n]+")
_AROUND_BREAK = re.compile(r" ?\n ?")
_BLANK_LINES = re.compile(r"\n{3,}")
# Each escape is matched whole: in \\u0000 the backslash is escaped, and the rest is text.
_ESCAPE = re.compile(rb"\\(u0000|.)", re.DOTALL)
_DECODER = json.JSONDecoder(parse_float=Decimal)  # once: ``json.loads`` creates one for each call


@dataclass(frozen=True, slots=True)
class RecordText:
    text: str
    sha: bytes  # sha256 of the text

    @classmethod
    def normalize(cls, raw: str) -> Self:
        text = normalize_text(raw)
        return cls(text, sha256(text.encode()).digest())


def normalize_text(raw: str) -> str:
    """Return ``raw`` without NULs and lone surrogates, runs of spaces as one and of blank lines as one.

    Idempotent. Letters, marks and case stay as they are.
    """
    text = strip_unstorable(raw).replace("\r\n", "\n").replace("\r", "\n")
    text = _AROUND_BREAK.sub("\n", _SPACES.sub(" ", text))
    return _BLANK_LINES.sub("\n\n", text).strip()


def strip_unstorable(raw: str) -> str:
    """Return ``raw`` without the characters that PostgreSQL cannot store."""
    return _UNSTORABLE.sub("", raw)


def truncate_for_embedding(text: str) -> str:
    """Return the beginning of ``text`` that every model accepts; the stored text and its word index stay whole."""
    return tokenizer.truncate(text[:MOST_CHARS], MOST_TOKENS)


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
