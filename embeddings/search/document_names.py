"""Names of documents, their file name and first headings, as an indexed field, and the documents that a query names."""

import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import connection

from embeddings.search.query_parser import CONFIGURATIONS, ENGLISH
from embeddings.search.vector_search import Scope

PREFIX = "\x01"  # of the terms of names: no lexeme has it
MAX_HEADINGS = 2
MAX_CHARS = 200  # of a heading, or of an opening without headings
MAX_NAMED = 1_000  # documents
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_WORD = re.compile(r"[^\W_]+(?:\.\d+)*")
_PART = re.compile(r"\d+|[^\W\d_]+")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_FISCAL_YEAR = re.compile(r"^FY(\d\d)$", re.IGNORECASE)
# The first chunk holds the title. Names carry no postings.
SELECT_NAME = """
    SELECT d.user_id, d.filename, c.text, c.meta ->> 'language'
    FROM documents d JOIN document_chunks c USING (document_id)
    WHERE d.document_id = %s AND c.embedding IS NOT NULL ORDER BY c.chunk_ord LIMIT 1"""
REPLACE_NAME = """
    DELETE FROM document_terms WHERE document_id = %(document)s AND starts_with(term, %(prefix)s);
    INSERT INTO document_terms (user_id, document_id, term, postings)
    SELECT %(user)s, %(document)s, %(prefix)s || lexeme, ''
    FROM unnest(to_tsvector(%(configuration)s::regconfig, %(words)s)) ORDER BY lexeme COLLATE "C" """
# A word in more than half of the names tells none of them from the others.
SELECT_NAMED = """
    WITH asked AS (
        SELECT array_agg(%(prefix)s || lexeme) AS terms
        FROM unnest(%(configurations)s::regconfig[]) configuration,
             unnest(to_tsvector(configuration, %(words)s))),
    named AS (
        SELECT document_id, count(*) OVER (PARTITION BY term) AS times FROM document_terms
        WHERE user_id = %(user)s AND term = ANY((SELECT terms FROM asked)::text[]){documents}),
    every AS (
        SELECT count(*) AS documents FROM document_terms WHERE user_id = %(user)s AND term = ''{documents})
    SELECT document_id, sum(ln(1 + (documents - times + 0.5) / (times + 0.5)))::float8 FROM named, every
    WHERE 2 * times <= documents GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT %(most)s"""


def split_words(text: str) -> str:
    """Return the words of a name or a query, those that are glued together also apart: ``GPLv3 GPLv 3``."""
    words = []
    for word in _WORD.findall(text):
        is_glued = _HUMP.search(word) or not (word.isalpha() or word.isdigit())
        parts = _PART.findall(_HUMP.sub(" ", word)) if is_glued else []
        words += [word, *(part for part in parts if len(part) > 1 or part.isdigit())]
        words += [f"20{year}" for year in _FISCAL_YEAR.findall(word)]
    return " ".join(words)


def index_name(document_id: UUID) -> None:
    """Replace the document's name in the index of words. Buys nothing; call where the document was renamed."""
    with connection.cursor() as cursor:
        cursor.execute(SELECT_NAME, [document_id])
        for user_id, filename, opening, language in cursor.fetchall():
            titles = _HEADING.findall(opening)[:MAX_HEADINGS] or [opening]
            name = " ".join([filename.removesuffix(".pdf"), *(title[:MAX_CHARS] for title in titles)])
            params: dict[str, Any] = {"user": user_id, "document": document_id, "prefix": PREFIX}
            params |= {"configuration": CONFIGURATIONS.get(language or "", ENGLISH), "words": split_words(name)}
            cursor.execute(REPLACE_NAME, params)


def named_documents(scope: Scope, query: str, configurations: Sequence[str] = (ENGLISH,)) -> dict[UUID, float]:
    """Return the documents whose names have words of the query, with the sum of the words' idf among the names."""
    documents = "" if scope.document_ids is None else " AND document_id = ANY(%(documents)s)"
    params = scope.params | {"prefix": PREFIX, "words": split_words(query), "most": MAX_NAMED}
    params |= {"configurations": list(configurations)}
    with connection.cursor() as cursor:
        cursor.execute(SELECT_NAMED.format(documents=documents), params)
        return dict(cursor.fetchall())
