"""Articles within a passage: their spans, and the article that answers a query (short ones share a passage)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from accounts.system_tenant import SYSTEM_TENANT_ID
from embeddings.indexes import text_search_config
from embeddings.search import Passage, bm25_search
from embeddings.search import query as asking
from embeddings.search.snippets import quote_lexeme
from statutes.chunking.sections import MAX_TITLE_CHARS
from statutes.structure import labels
from statutes.structure.markdown import ARTICLE_LEVEL

_HEADING = re.compile(r"^(#{1,6})(?: +([^\n]*))?$", re.MULTILINE)
# Words in the heading weigh more: its number is what most queries name.
RANKS = """
    SELECT ts_rank('{0.2, 0.2, 0.2, 1}', setweight(to_tsvector(c, split_part(t, E'\\n', 1)), 'A')
        || to_tsvector(c, t), %(words)s::tsquery, 1)
    FROM unnest(%(texts)s::text[], %(configurations)s::regconfig[]) WITH ORDINALITY part(t, c, number)
    ORDER BY number"""


@dataclass(frozen=True, slots=True)
class ArticleSpan:
    """An article, or a piece of one, at [start, end) of its passage's text; ``headings`` is its heading path."""

    id: str
    label: str
    headings: list[str]
    start: int
    end: int
    text: str
    configuration: str


def article_spans(passage: Passage) -> list[ArticleSpan]:
    """Return the articles of a passage in order; none for text outside of articles."""
    ids = list(dict.fromkeys(map(str, passage.meta.get("articles") or ())))
    places = list(_article_places(passage))
    if places:
        # A later piece of a long article may precede the first article that begins here.
        headings, (start, _) = places[0]
        is_other_article = headings[-1] != "" and passage.headings[-1:] != [headings[-1][:MAX_TITLE_CHARS]]
        if len(ids) - len(places) == 1 or is_other_article:
            places.insert(0, (passage.headings, (0, start)))
    if len(places) != len(ids):  # a later piece of a long article does not repeat its heading
        path = passage.headings if len(ids) == 1 else []
        places = [(path, (0, len(passage.text)))] * len(ids)
    spans = []
    for article_id, (headings, (start, end)) in zip(ids, places, strict=True):
        label = headings[-1].partition(labels.LABEL_SEPARATOR)[0].strip() if headings else ""
        configuration = text_search_config.config_of_chunk(passage.meta)
        text, path = passage.text[start:end], list(filter(None, headings))
        spans.append(ArticleSpan(article_id, label or article_id, path, start, end, text, configuration))
    return spans


def _article_places(passage: Passage) -> Iterator[tuple[list[str], tuple[int, int]]]:
    """Yield the heading path and the place of each article that begins in the passage."""
    path = passage.headings[:-1]
    divisions = labels.DivisionStack(list(range(1, len(path) + 1)), path)
    headings = list(_HEADING.finditer(passage.text))
    ends = [following.start() for following in headings[1:]] + [len(passage.text)]
    for heading, end in zip(headings, ends, strict=False):
        title = labels.strip_anchor(heading[2] or "")
        if len(heading[1]) == ARTICLE_LEVEL:
            yield [*divisions.titles, title], (heading.start(), end)
        else:
            divisions.enter(len(heading[1]), title)


def best_articles(passages: Sequence[Sequence[ArticleSpan]], query: str) -> list[ArticleSpan | None]:
    """Return for each passage the article that the query names, or else the one that matches its words best."""
    spans = [span for spans in passages if len(spans) > 1 for span in spans]
    ranks = dict(zip(map(id, spans), _rank(spans, query), strict=True))
    return [_best_article(spans, [ranks.get(id(span), 0.0) for span in spans], query) for spans in passages]


def _best_article(spans: Sequence[ArticleSpan], ranks: Sequence[float], query: str) -> ArticleSpan | None:
    # The words alone would take "4(a)" for "4(b)".
    words = _fold(query)
    matches = [span for span in spans if re.search(rf"(?<!\w){re.escape(_fold(span.label))}(?![\w(])", words)]
    if len(matches) == 1 or len(spans) == 1:
        return (matches or spans)[0]
    best = max(ranks, default=0.0)
    return spans[ranks.index(best)] if best > 0 and ranks.count(best) == 1 else None


def _fold(text: str) -> str:
    return " ".join(text.casefold().split())


def _rank(spans: Sequence[ArticleSpan], query: str) -> list[float]:
    if not spans:
        return []
    configurations = text_search_config.configs_of_tenant(SYSTEM_TENANT_ID)
    lexemes = bm25_search.query_lexemes(asking.parse_query(query).text, configurations)
    if not lexemes:
        return [0.0] * len(spans)
    params: dict[str, Any] = {
        "words": " | ".join(map(quote_lexeme, lexemes)),
        "texts": [span.text for span in spans],
        "configurations": [span.configuration for span in spans],
    }
    with connection.cursor() as cursor:
        cursor.execute(RANKS, params)
        return [rank for (rank,) in cursor.fetchall()]
