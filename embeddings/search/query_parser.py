"""The search query: words, phrases, exclusions, options and filters; its lexemes by language, and its embedding."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from uuid import UUID

from django.conf import settings

from accounts.errors import ApiError
from embeddings import embedding_calls, error_codes, tokenizer
from embeddings.active_model import require_embedder
from embeddings.embedders import registry
from embeddings.embedders.http_base import HttpEmbedder
from embeddings.embedders.registry import EmbeddingModel
from embeddings.search.lexemes import ENGLISH, PARTED, per_config_sql
from embeddings.search.vector_search import Condition

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

    def conditions(self, configurations: Sequence[str] = (ENGLISH,)) -> tuple[Condition, ...]:
        """Return SQL conditions on chunks ``c`` with their parameters, for these text search configurations.

        A phrase of stop words matches every chunk.
        """
        conditions = []
        for number, phrase in enumerate(self.phrases):
            tsquery = f"phraseto_tsquery('{{configuration}}', {PARTED.format(f'%(phrase_{number})s::text')})"
            empty = " OR ".join(f"numnode({tsquery.format(configuration=each)}) = 0" for each in configurations)
            matches = per_config_sql(f"c.search @@ {tsquery}", configurations)
            conditions.append((f"({empty} OR {matches})", {f"phrase_{number}": phrase}))
        for number, phrase in enumerate(self.excluded):
            tsquery = f"phraseto_tsquery('{{configuration}}', {PARTED.format(f'%(excluded_{number})s::text')})"
            sql = per_config_sql(f"NOT c.search @@ {tsquery}", configurations)
            conditions.append((sql, {f"excluded_{number}": phrase}))
        return tuple(conditions)


def parse_query(query: str) -> Query:
    """Parse a query; raise ``ApiError`` for one that is empty, only excludes, or is too long."""
    text = query.encode("utf-8", "replace").decode().replace("\0", " ").strip()
    if not text:
        raise ApiError(error_codes.EMPTY_QUERY, field="query")
    too_long = "The query is longer than {}."
    if len(text) > settings.MAX_QUERY_CHARS:
        limit = f"{settings.MAX_QUERY_CHARS} characters"
        raise ApiError(error_codes.QUERY_TOO_LONG, too_long.format(limit), field="query")
    if not tokenizer.fits_in_tokens(text, MAX_TOKENS):
        raise ApiError(error_codes.QUERY_TOO_LONG, too_long.format(f"{MAX_TOKENS} tokens"), field="query")
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
    if not re.search(r"\w", included):
        detail = "The query says only what to leave out; add a word to look for."
        raise ApiError(error_codes.EMPTY_QUERY, detail, field="query")
    return Query(included, tuple(phrases), tuple(excluded))


def validate_options(k: int, mode: str) -> None:
    if not 1 <= k <= settings.MAX_SEARCH_RESULTS:
        raise ApiError(error_codes.K_OUT_OF_RANGE, f"k must be between 1 and {settings.MAX_SEARCH_RESULTS}.", field="k")
    if mode not in MODES:
        raise ApiError(error_codes.UNKNOWN_MODE, f"mode must be one of {', '.join(MODES)}.", field="mode")


@dataclass(frozen=True, slots=True)
class QueryEmbedding:
    """Vectors of one request's query, bought once for all its searches."""

    user_id: UUID
    _vectors: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)

    def is_at_hand(self, model: EmbeddingModel, query: Query) -> bool:
        """Tell whether ``vector`` calls no vendor: the query is embedded already, or the model is a local one."""
        embedder = registry.find_embedder(model)
        is_local = embedder is not None and not isinstance(embedder, HttpEmbedder)
        return is_local or (model.model, model.version, query.text) in self._vectors

    def vector(self, model: EmbeddingModel, query: Query) -> list[float]:
        """Embed the query with this model. Raises ``ApiError`` while that is not possible."""
        key = (model.model, model.version, query.text)
        if key not in self._vectors:
            embedder = require_embedder(model)
            detail = "Search is away; try again shortly."
            with embedding_calls.as_api_errors(error_codes.SEARCH_UNAVAILABLE, detail, field="query"):
                vectors = embedding_calls.embed_texts(embedder, [query.text], user_id=self.user_id, stage="search")
            self._vectors[key] = vectors[0].tolist()
        return self._vectors[key]

    def cents(self) -> Decimal:
        """Return the price of the vectors that were bought."""
        bought = ((require_embedder(EmbeddingModel(model, version)), text) for model, version, text in self._vectors)
        return sum(
            (
                embedder.cents(tokenizer.count_tokens(text))
                for embedder, text in bought
                if isinstance(embedder, HttpEmbedder) and embedder.is_billed
            ),
            Decimal(0),
        )
