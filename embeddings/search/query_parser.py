"""Search query: validation, quoted phrases and excluded words, and the query's embedding."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings

from accounts.error_codes import ApiError
from embeddings import billed_calls, tokenizer
from embeddings.active_model import EmbeddingModel, require_embedder
from embeddings.error_codes import EMPTY_QUERY, K_OUT_OF_RANGE, QUERY_TOO_LONG, SEARCH_UNAVAILABLE, UNKNOWN_MODE
from embeddings.indexes.text_search_config import ENGLISH, per_config_sql

HYBRID, VECTOR, TEXT = "hybrid", "vector", "text"
MODES = (HYBRID, VECTOR, TEXT)
MAX_TOKENS = 8_000  # the vendor's limit is 8,191
MAX_OPERATORS = 20  # more quotes and dashes are a pasted text's, not a search's

# As in websearch_to_tsquery: "these words in a row", -without. A dash before a number is a minus sign.
OPERATORS = re.compile(
    r'(?<!\S)-"(?P<excluded_phrase>[^"]*)"|"(?P<phrase>[^"]*)"|(?<!\S)-(?P<excluded_word>[^\W\d_][^\s"]*)'
)
QUOTES = str.maketrans("“”„‟«»", '""""""')


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query. ``text``, which is embedded and matched by words, is the query without its exclusions."""

    text: str
    phrases: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def conditions(self, configurations: Sequence[str] = (ENGLISH,)) -> tuple[tuple[str, dict[str, Any]], ...]:
        """Return SQL conditions on chunks ``c`` with their parameters, for these text search configurations.

        A phrase of stop words matches every chunk.
        """
        conditions = []
        for number, phrase in enumerate(self.phrases):
            tsquery = f"phraseto_tsquery('{{configuration}}', %(phrase_{number})s)"
            empty = " OR ".join(f"numnode({tsquery.format(configuration=each)}) = 0" for each in configurations)
            matches = per_config_sql(f"c.search @@ {tsquery}", configurations)
            conditions.append((f"({empty} OR {matches})", {f"phrase_{number}": phrase}))
        for number, phrase in enumerate(self.excluded):
            tsquery = f"phraseto_tsquery('{{configuration}}', %(excluded_{number})s)"
            sql = per_config_sql(f"NOT c.search @@ {tsquery}", configurations)
            conditions.append((sql, {f"excluded_{number}": phrase}))
        return tuple(conditions)


def parse_query(query: str) -> Query:
    """Parse a query; raise ``ApiError`` for one that is empty or too long."""
    text = query.encode("utf-8", "replace").decode().replace("\0", " ").strip()
    if not text:
        raise ApiError(EMPTY_QUERY, field="query")
    too_long = "The query is longer than {}."
    if len(text) > settings.MAX_QUERY_CHARS:
        limit = f"{settings.MAX_QUERY_CHARS} characters"
        raise ApiError(QUERY_TOO_LONG, too_long.format(limit), field="query")
    if not tokenizer.fits_in_tokens(text, MAX_TOKENS):
        raise ApiError(QUERY_TOO_LONG, too_long.format(f"{MAX_TOKENS} tokens"), field="query")
    phrases, excluded = [], []
    plain = text.translate(QUOTES)
    operators = list(OPERATORS.finditer(plain))
    if len(operators) > MAX_OPERATORS:
        return Query(text)
    for match in operators:
        if phrase := (match["phrase"] or "").strip():
            phrases.append(phrase)
        elif phrase := (match["excluded_phrase"] or match["excluded_word"] or "").strip():
            excluded.append(phrase)
    if not excluded:
        return Query(text, tuple(phrases))
    included = OPERATORS.sub(lambda match: match[0] if match["phrase"] is not None else " ", plain).strip()
    # A query of nothing but exclusions is taken literally.
    return Query(included, tuple(phrases), tuple(excluded)) if re.search(r"\w", included) else Query(text)


def validate_options(k: int, mode: str) -> None:
    """Raise ``ApiError`` unless ``k`` and ``mode`` are allowed."""
    if not 1 <= k <= settings.MAX_SEARCH_RESULTS:
        raise ApiError(K_OUT_OF_RANGE, f"k must be between 1 and {settings.MAX_SEARCH_RESULTS}.", field="k")
    if mode not in MODES:
        raise ApiError(UNKNOWN_MODE, f"mode must be one of {', '.join(MODES)}.", field="mode")


class QueryEmbedding:
    """Vectors of one request's query, bought once for all its searches."""

    def __init__(self, user_id: UUID) -> None:
        self._user_id = user_id
        self._vectors: dict[tuple[str, str, str], list[float]] = {}

    def vector(self, model: EmbeddingModel, query: Query) -> list[float]:
        """Embed the query with this model. Raises ``ApiError`` while that is not possible."""
        key = (model.model, model.version, query.text)
        if key not in self._vectors:
            embedder = require_embedder(model)
            with billed_calls.as_api_errors(SEARCH_UNAVAILABLE, "Search is away; try again shortly.", field="query"):
                vectors = billed_calls.embed_texts(embedder, [query.text], user_id=self._user_id, stage="search")
            self._vectors[key] = vectors[0].tolist()
        return self._vectors[key]
