"""Normalization of records: searchable text, its hash, and the part of it that is embedded."""

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Self

from embeddings import tokenizer

# The limit of OpenAI's models, and of another deployment's /internal/embed.
MOST_TOKENS, MOST_CHARS = 8_191, 32_000

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]+")  # PostgreSQL stores neither NULs nor lone surrogates
_SPACES = re.compile(r"[^\S\n]+")
_AROUND_BREAK = re.compile(r" ?\n ?")
_BLANK_LINES = re.compile(r"\n{3,}")


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
