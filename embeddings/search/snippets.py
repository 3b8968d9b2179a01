"""Snippets: about 40 words around the matches of a query, as HTML."""

import html
from collections.abc import Sequence
from typing import Any

from django.db import connection

from embeddings.indexes.text_search_config import ENGLISH

# Control characters mark the words until everything else is escaped: no text of a document has them.
MARK_START, MARK_STOP = "\x02", "\x03"
HEADLINE_OPTIONS = f"StartSel={MARK_START}, StopSel={MARK_STOP}, MaxWords=40, MinWords=25, ShortWord=0"
HEADLINES = """
    SELECT ts_headline(t.configuration, translate(t.text, %(marks)s, ''), %(words)s::tsquery, %(options)s)
    FROM unnest(%(texts)s::text[], %(configurations)s::regconfig[])
        WITH ORDINALITY t(text, configuration, number) ORDER BY t.number"""


def render_snippets(texts: Sequence[str], words: Sequence[str], configurations: Sequence[str] = ()) -> list[str]:
    """Return about 40 words of each text, ``words`` (lexemes) between <mark> and </mark>, all else escaped.

    ``configurations`` are the texts' text search configurations, English by default.
    """
    params: dict[str, Any] = {
        "marks": MARK_START + MARK_STOP,
        "words": " | ".join(map(quote_lexeme, words)),
        "options": HEADLINE_OPTIONS,
        "texts": list(texts),
        "configurations": list(configurations) or [ENGLISH] * len(texts),
    }
    with connection.cursor() as cursor:
        cursor.execute(HEADLINES, params)
        headlines = [html.escape(" ".join(headline.split())) for (headline,) in cursor.fetchall()]
    return [text.replace(MARK_START, "<mark>").replace(MARK_STOP, "</mark>") for text in headlines]


def strip_marks(snippet: str) -> str:
    """Return a snippet as plain text."""
    return html.unescape(snippet.replace("<mark>", "").replace("</mark>", ""))


def quote_lexeme(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"
