"""The articles that stand in one passage, and which of them answers: short ones share a passage with neighbours."""

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
# How well the words asked for stand in each; in the heading, whose number is what is asked for most, they count more.
RANKS = """
    SELECT ts_rank('{0.2, 0.2, 0.2, 1}', setweight(to_tsvector(c, split_part(t, E'\\n', 1)), 'A')
        || to_tsvector(c, t), %(words)s::tsquery, 1)
    FROM unnest(%(texts)s::text[], %(configurations)s::regconfig[]) WITH ORDINALITY part(t, c, number)
    ORDER BY number"""


@dataclass(frozen=True, slots=True)
class ArticleSpan:
    """An article, or a piece of one, at [start, end) of its passage's text; ``headings`` are those that it is under."""

    id: str
    label: str
    headings: list[str]
    start: int
    end: int
    text: str
    configuration: str


def article_spans(passage: Passage) -> list[ArticleSpan]:
    """Return the articles of a passage in order; none, where it is text that stands in no article."""
    ids = list(dict.fromkeys(map(str, passage.meta.get("articles") or ())))
    found = list(_titled(passage))
    if found and _goes_on(passage, found[0][0][-1], len(ids) - len(found)):
        found.insert(0, (passage.headings, (0, found[0][1][0])))
    if len(found) != len(ids):  # a later piece of a long article does not repeat its heading
        headings = passage.headings if len(ids) == 1 else []
        return [_part(passage, each, headings, (0, len(passage.text))) for each in ids]
    return [_part(passage, each, headings, place) for each, (headings, place) in zip(ids, found, strict=True)]


def _goes_on(passage: Passage, title: str, more: int) -> bool:
    """Tell whether a later piece of a long article stands before the first article that begins here."""
    return more == 1 or (title != "" and passage.headings[-1:] != [title[:MAX_TITLE_CHARS]])


def _titled(passage: Passage) -> Iterator[tuple[list[str], tuple[int, int]]]:
    """Yield the headings and the place of each article that begins in the passage."""
    above = passage.headings[:-1]
    divisions = labels.DivisionStack(list(range(1, len(above) + 1)), above)
    headings = list(_HEADING.finditer(passage.text))
    ends = [after.start() for after in headings[1:]] + [len(passage.text)]
    for heading, end in zip(headings, ends, strict=False):
        title = labels.strip_anchor(heading[2] or "")
        if len(heading[1]) == ARTICLE_LEVEL:
            yield [*divisions.titles, title], (heading.start(), end)
        else:
            divisions.enter(len(heading[1]), title)


def _part(passage: Passage, article: str, headings: Sequence[str], place: tuple[int, int]) -> ArticleSpan:
    label = headings[-1].partition(labels.LABEL_SEPARATOR)[0].strip() if headings else ""
    text = passage.text[place[0] : place[1]]
    return ArticleSpan(
        article,
        label or article,
        list(filter(None, headings)),
        *place,
        text,
        text_search_config.config_of_chunk(passage.meta),
    )


def best_articles(passages: Sequence[Sequence[ArticleSpan]], query: str) -> list[ArticleSpan | None]:
    """Return of each passage the article that answers: the one that is named, or in which the words stand best."""
    several = [each for inside in passages if len(inside) > 1 for each in inside]
    ranks = dict(zip(map(id, several), _ranks(several, query), strict=True))
    asked = _plain(query)
    return [
        _named(inside, asked) or _best(inside, [ranks.get(id(each), 0.0) for each in inside]) for inside in passages
    ]


def _named(inside: Sequence[ArticleSpan], asked: str) -> ArticleSpan | None:
    """Return the article that the query names, if it names one of these: words alone take "4(a)" for "4(b)"."""
    named = [each for each in inside if re.search(rf"(?<!\w){re.escape(_plain(each.label))}(?![\w(])", asked)]
    return named[0] if len(named) == 1 else None


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _best(inside: Sequence[ArticleSpan], ranks: Sequence[float]) -> ArticleSpan | None:
    if len(inside) < 2:
        return inside[0] if inside else None
    best = max(ranks)
    return inside[ranks.index(best)] if best > 0 and ranks.count(best) == 1 else None


def _ranks(several: Sequence[ArticleSpan], query: str) -> list[float]:
    lexemes = (
        bm25_search.query_lexemes(
            asking.parse_query(query).text, text_search_config.configs_of_tenant(SYSTEM_TENANT_ID)
        )
        if several
        else []
    )
    if not lexemes:
        return [0.0] * len(several)
    values: dict[str, Any] = {
        "words": " | ".join(map(quote_lexeme, lexemes)),
        "texts": [each.text for each in several],
        "configurations": [each.configuration for each in several],
    }
    with connection.cursor() as cursor:
        cursor.execute(RANKS, values)
        return [rank for (rank,) in cursor.fetchall()]
