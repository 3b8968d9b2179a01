"""The search query: words, phrases, exclusions, options and filters; its lexemes by language, and its embedding."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.utils.dateparse import parse_date, parse_datetime

from accounts.errors import ApiError
from accounts.system_tenant import SYSTEM_TENANT_ID
from documents.models import Document
from embeddings import embedding_calls, error_codes, tokenizer
from embeddings.active_model import require_embedder
from embeddings.embedders import EmbeddingModel
from embeddings.embedders.http_base import HttpEmbedder
from embeddings.search.vector_search import Condition, Scope

HYBRID, VECTOR, TEXT = "hybrid", "vector", "text"
MODES = (HYBRID, VECTOR, TEXT)
MAX_TOKENS = 8_000  # the vendor's limit is 8,191
MAX_OPERATORS = 20  # more quotes and dashes are a pasted text's, not a search's

# As in websearch_to_tsquery: "these words in a row", -without. A dash before a number is a minus sign.
OPERATORS = re.compile(
    r'(?<!\S)-"(?P<excluded_phrase>[^"]*)"|"(?P<phrase>[^"]*)"|(?<!\S)-(?P<excluded_word>[^\W\d_][^\s"]*)'
)
QUOTES = str.maketrans("“”„‟«»", '""""""')

# PostgreSQL's text search configurations by the language in a chunk's meta. Another one changes
# embeddings.models.DocumentChunk.search too.
ENGLISH = "english"
CONFIGURATIONS = {"es": "spanish"}
LEXEMES = "SELECT tsvector_to_array(to_tsvector(%(configuration)s::regconfig, %(text)s))"
# For several languages: a stop word of any of them is left out; "la" would be a rare word among English chunks, and
# score highest of all. Without its accent, "obligacion" or "garantia" has another stem.
LEXEMES_OF_SEVERAL = """
    WITH typed AS (SELECT DISTINCT lower(token) AS token FROM ts_parse('default', %(text)s)),
    spelled AS (
        SELECT token FROM typed
        UNION SELECT regexp_replace(regexp_replace(token, 'ion$', 'ión'), 'i(as?)$', 'í\\1') FROM typed),
    read AS MATERIALIZED (
        SELECT token, tsvector_to_array(to_tsvector(configuration, token)) AS lexemes
        FROM spelled, unnest(%(configurations)s::regconfig[]) configuration)
    SELECT coalesce(array_agg(DISTINCT lexeme), '{}') FROM read, unnest(lexemes) lexeme
    WHERE token NOT IN (SELECT token FROM read WHERE lexemes = '{}')"""


def configs_of_tenant(user_id: UUID) -> tuple[str, ...]:
    """Return the configurations of a tenant's chunks: those of statutes name their language, uploads do not."""
    return (ENGLISH, *CONFIGURATIONS.values()) if user_id == SYSTEM_TENANT_ID else (ENGLISH,)


def config_of_chunk(meta: Mapping[str, Any]) -> str:
    return CONFIGURATIONS.get(str(meta.get("language")), ENGLISH)


def per_config_sql(sql: str, configurations: Sequence[str]) -> str:
    """Return ``sql`` on a chunk ``c`` with its ``{configuration}`` filled in by the chunk's language."""
    if len(configurations) == 1:
        return sql.format(configuration=configurations[0])
    cases = " ".join(
        f"WHEN '{language}' THEN {sql.format(configuration=configuration)}"
        for language, configuration in CONFIGURATIONS.items()
    )
    return f"CASE c.meta ->> 'language' {cases} ELSE {sql.format(configuration=ENGLISH)} END"


def query_lexemes(text: str, configurations: Sequence[str] = (ENGLISH,)) -> list[str]:
    """Return the lexemes of a text: its stemmed words without stop words, each once."""
    params: dict[str, Any] = {"text": text, "configuration": configurations[0], "configurations": list(configurations)}
    with connection.cursor() as cursor:
        cursor.execute(LEXEMES if len(configurations) == 1 else LEXEMES_OF_SEVERAL, params)
        lexemes: list[str] = cursor.fetchone()[0]
    return lexemes


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


LAST_PAGE = 1_000_000
MAX_CHARS = 1_000  # of a heading or a filename

Lookup = tuple[str, Any]

PAGES = (
    "(c.meta -> 'pages' ->> 0)::int <= %(filter_last_page)s AND (c.meta -> 'pages' ->> 1)::int >= %(filter_first_page)s"
)
HEADING = """strpos(lower((SELECT string_agg(title, ' > ') FROM jsonb_array_elements_text(c.meta -> 'headings') title)),
                    lower(%(filter_heading)s)) > 0"""


@dataclass(frozen=True, slots=True)
class Filters:
    """``conditions`` are SQL on the chunks ``c``, ``lookups`` Django's on the documents."""

    conditions: tuple[Condition, ...] = ()
    lookups: tuple[Lookup, ...] = ()

    def narrow(self, scope: Scope, document_ids: Sequence[UUID] | None) -> Scope:
        """Narrow the scope to the ``document_ids`` (None: all) that pass. Call inside ``as_tenant``."""
        if self.lookups:
            documents = Document.objects.filter(user_id=scope.user_id, **dict(self.lookups))
            passing = documents if document_ids is None else documents.filter(pk__in=document_ids)
            document_ids = list(passing.values_list("pk", flat=True))
        return scope if document_ids is None else replace(scope, document_ids=tuple(sorted(set(document_ids))))


def parse_filters(filters: object) -> Filters:
    """Parse a request's filters; raise ``ApiError`` for one that is unknown or invalid."""
    if filters is None:
        return Filters()
    if not isinstance(filters, Mapping):
        raise _invalid("", "filters is an object.")
    if any(name not in PARSERS for name in filters):
        raise ApiError(error_codes.UNKNOWN_FILTER, f"The filters are {', '.join(PARSERS)}.", field="filters")
    parsed = [PARSERS[name](name, raw) for name, raw in filters.items() if raw is not None]
    conditions = tuple(each for each in parsed if isinstance(each[1], dict))
    lookups = {name: bound for name, bound in parsed if not isinstance(bound, dict)}
    after, before = lookups.get("created_at__gte"), lookups.get("created_at__lt")
    if after and before and after >= before:
        raise _invalid("uploaded_before", "uploaded_before must be later than uploaded_after.")
    return Filters(conditions, tuple(lookups.items()))


def _invalid(name: str, detail: str) -> ApiError:
    return ApiError(error_codes.INVALID_FILTER, detail, field=f"filters.{name}" if name else "filters")


def _pages(name: str, raw: object) -> Condition:
    numbers = raw if isinstance(raw, (list, tuple)) else ()
    if len(numbers) != 2 or not all(type(number) is int for number in numbers):
        raise _invalid(name, "pages is [first, last], two whole numbers.")
    first, last = numbers
    if not 1 <= first <= last <= LAST_PAGE:
        raise _invalid(name, f"pages is [first, last], from 1 to {LAST_PAGE}, first not after last.")
    return PAGES, {"filter_first_page": first, "filter_last_page": last}


def _text(name: str, raw: object) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise _invalid(name, f"{name} is a text that is not empty.")
    if len(raw) > MAX_CHARS or "\0" in raw or any("\ud800" <= letter <= "\udfff" for letter in raw):
        raise _invalid(name, f"{name} is a text of at most {MAX_CHARS} characters, without control or half characters.")
    return raw.strip()


def _time(name: str, raw: object) -> datetime:
    """Parse a time; a day is its first moment, a time without zone is UTC."""
    try:
        if isinstance(raw, str):
            moment = parse_datetime(raw)
            if moment is None and (day := parse_date(raw)):
                moment = datetime.combine(day, time())
            if moment:
                # To UTC here, where a moment outside the calendar raises, and not in the database.
                return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):  # well formed, and no such day
        pass
    raise _invalid(name, f"{name} is a date or a time in ISO 8601, like 2026-01-31 or 2026-01-31T12:00:00Z.")


PARSERS: dict[str, Callable[[str, object], Condition | Lookup]] = {
    "pages": _pages,
    "heading": lambda name, raw: (HEADING, {"filter_heading": _text(name, raw)}),
    "filename": lambda name, raw: ("filename__iexact", _text(name, raw)),
    "uploaded_after": lambda name, raw: ("created_at__gte", _time(name, raw)),
    "uploaded_before": lambda name, raw: ("created_at__lt", _time(name, raw)),
}
