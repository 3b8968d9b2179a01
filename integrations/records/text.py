"""The text that a record is found by: in one form, so that what looks alike is embedded once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Self

from embeddings import tokenizer

# What every model takes: OpenAI's limit, and that of another deployment's /internal/embed.
MOST_TOKENS, MOST_CHARS = 8_191, 32_000

_NEVER_STORED = re.compile("[\x00\ud800-\udfff]+")  # PostgreSQL takes neither NULs nor half characters
_WITHIN_LINE = re.compile(r"[^\S\n]+")
_AROUND_BREAK = re.compile(r" ?\n ?")
_BLANK_LINES = re.compile(r"\n{3,}")


@dataclass(frozen=True, slots=True)
class RecordText:
    """A normalized text and its sha256."""

    text: str
    sha: bytes

    @classmethod
    def normalize(cls, raw: str) -> Self:
        text = normalize_text(raw)
        return cls(text, sha256(text.encode()).digest())


def normalize_text(raw: str) -> str:
    """Return ``raw`` without NULs and half characters, its runs of spaces as one and of blank lines as one.

    Normalizing twice changes nothing. Letters, marks and case stay as they are.
    """
    text = _NEVER_STORED.sub("", raw).replace("\r\n", "\n").replace("\r", "\n")
    text = _AROUND_BREAK.sub("\n", _WITHIN_LINE.sub(" ", text))
    return _BLANK_LINES.sub("\n\n", text).strip()


def strip_unstorable(raw: str) -> str:
    """Return ``raw`` as PostgreSQL takes it."""
    return _NEVER_STORED.sub("", raw)


def truncate_for_embedding(text: str) -> str:
    """Return the beginning of ``text`` that every model takes; what is stored and searched by words stays whole."""
    return tokenizer.truncate(text[:MOST_CHARS], MOST_TOKENS)
