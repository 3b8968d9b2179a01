"""A few words around what was asked for, as HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from django.db import connection

from embeddings.indexes.text_search_config import ENGLISH

# Control characters mark the words until everything else is escaped: no text of a document has them.
START, STOP = "\x02", "\x03"
OPTIONS = f"StartSel={START}, StopSel={STOP}, MaxWords=40, MinWords=25, ShortWord=0"
SQL = """
    SELECT ts_headline(shown.configuration, translate(shown.text, %(marks)s, ''), %(words)s::tsquery, %(options)s)
    FROM unnest(%(texts)s::text[], %(configurations)s::regconfig[])
        WITH ORDINALITY shown(text, configuration, number) ORDER BY shown.number"""


def render_snippets(texts: Sequence[str], words: Sequence[str], configurations: Sequence[str] = ()) -> list[str]:
    """Return about 40 words of each text, ``words`` (lexemes) between <mark> and </mark>, all else escaped.

    ``configurations`` says how each text is read, where that is not as English.
    """
    values: dict[str, Any] = {
        "marks": START + STOP,
        "words": " | ".join(map(quote_lexeme, words)),
        "options": OPTIONS,
        "texts": list(texts),
        "configurations": list(configurations) or [ENGLISH] * len(texts),
    }
    with connection.cursor() as cursor:
        cursor.execute(SQL, values)
        return [_escaped(snippet) for (snippet,) in cursor.fetchall()]


def strip_marks(snippet: str) -> str:
    """Return a snippet as text, for where nothing can be marked."""
    return html.unescape(snippet.replace("<mark>", "").replace("</mark>", ""))


def quote_lexeme(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


def _escaped(snippet: str) -> str:
    safe = html.escape(" ".join(snippet.split()))
    return safe.replace(START, "<mark>").replace(STOP, "</mark>")
