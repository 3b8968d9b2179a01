"""What somebody asks: checked, and read for what must stand in a passage and what must not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from accounts.errors import ApiError
from embeddings import tokenizer
from embeddings.error_codes import EMPTY_QUERY, K_OUT_OF_RANGE, QUERY_TOO_LONG, UNKNOWN_MODE
from embeddings.indexes.text_search_config import ENGLISH, per_config_sql

HYBRID, VECTOR, TEXT = "hybrid", "vector", "text"
MODES = (HYBRID, VECTOR, TEXT)
MOST_TOKENS = 8_000  # the vendor's limit is 8,191
MOST_MARKS = 20  # more quotes and dashes are a pasted text's, not a search's

# As in websearch_to_tsquery: "these words in a row", -without. A dash before a number is a minus sign.
MARKED = re.compile(r'(?<!\S)-"(?P<unwanted>[^"]*)"|"(?P<phrase>[^"]*)"|(?<!\S)-(?P<without>[^\W\d_][^\s"]*)')
QUOTES = str.maketrans("“”„‟«»", '""""""')


@dataclass(frozen=True, slots=True)
class Query:
    """``text`` is what is embedded and whose words are counted: all of the query but what it excludes."""

    text: str
    phrases: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def conditions(self, configurations: Sequence[str] = (ENGLISH,)) -> tuple[tuple[str, dict[str, Any]], ...]:
        """Return SQL on the passages ``c`` that both arms look among, which may be read by these configurations.

        A phrase of stop words asks for nothing.
        """
        found = []
        for number, phrase in enumerate(self.phrases):
            asked = f"phraseto_tsquery('{{configuration}}', %(asked_phrase_{number})s)"
            empty = " OR ".join(f"numnode({asked.format(configuration=each)}) = 0" for each in configurations)
            stands = per_config_sql(f"c.search @@ {asked}", configurations)
            found.append((f"({empty} OR {stands})", {f"asked_phrase_{number}": phrase}))
        for number, word in enumerate(self.excluded):
            asked = f"phraseto_tsquery('{{configuration}}', %(asked_without_{number})s)"
            found.append(
                (per_config_sql(f"NOT c.search @@ {asked}", configurations), {f"asked_without_{number}": word})
            )
        return tuple(found)


def parse_query(query: str) -> Query:
    """Read a query; raise ``Refused`` for one that is empty or too long."""
    wanted = query.encode("utf-8", "replace").decode().replace("\0", " ").strip()
    if not wanted:
        raise ApiError(EMPTY_QUERY, field="query")
    if len(wanted) > settings.MAX_QUERY_CHARS:
        raise _too_long(f"{settings.MAX_QUERY_CHARS} characters")
    if not tokenizer.fits_in_tokens(wanted, MOST_TOKENS):
        raise _too_long(f"{MOST_TOKENS} tokens")
    return _marked(wanted)


def _too_long(limit: str) -> ApiError:
    return ApiError(QUERY_TOO_LONG, f"The query is longer than {limit}.", field="query")


def _marked(wanted: str) -> Query:
    phrases, excluded = [], []
    plain = wanted.translate(QUOTES)
    marks = list(MARKED.finditer(plain))
    if len(marks) > MOST_MARKS:
        return Query(wanted)
    for mark in marks:
        if phrase := (mark["phrase"] or "").strip():
            phrases.append(phrase)
        elif without := (mark["unwanted"] or mark["without"] or "").strip():
            excluded.append(without)
    if not excluded:
        return Query(wanted, tuple(phrases))
    text = MARKED.sub(lambda mark: mark[0] if mark["phrase"] is not None else " ", plain).strip()
    # Who only excludes asks for nothing: what is typed is then taken as it stands.
    return Query(text, tuple(phrases), tuple(excluded)) if re.search(r"\w", text) else Query(wanted)


def validate_options(k: int, mode: str) -> None:
    """Raise ``Refused`` unless ``k`` and ``mode`` are among what there is."""
    if not 1 <= k <= settings.MAX_SEARCH_RESULTS:
        raise ApiError(K_OUT_OF_RANGE, f"k must be between 1 and {settings.MAX_SEARCH_RESULTS}.", field="k")
    if mode not in MODES:
        raise ApiError(UNKNOWN_MODE, f"mode must be one of {', '.join(MODES)}.", field="mode")
