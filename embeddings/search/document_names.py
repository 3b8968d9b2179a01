"""Names of documents, their file name and first headings, as an indexed field, and the documents that a query names."""

import re
from collections.abc import Sequence
from math import log
from typing import Any
from uuid import UUID

import numpy as np
from django.db import connection
from numpy.typing import NDArray

from embeddings.search.lexemes import CONFIGURATIONS, ENGLISH
from embeddings.search.postings import NAME_PREFIX, Postings

MAX_HEADINGS = 2
MAX_CHARS = 200  # of a heading, or of an opening without headings
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
INSERT_NAME = """
    INSERT INTO document_terms (user_id, document_id, term, postings)
    SELECT %(user)s, %(document)s, %(prefix)s || lexeme, ''
    FROM unnest(to_tsvector(%(configuration)s::regconfig, %(words)s)) ORDER BY lexeme COLLATE "C" """
DELETE_NAME = "DELETE FROM document_terms WHERE document_id = %s AND starts_with(term, %s)"


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
    """Write the document's name into the index of words; ``bm25.index_document`` calls this."""
    with connection.cursor() as cursor:
        cursor.execute(SELECT_NAME, [document_id])
        for user_id, filename, opening, language in cursor.fetchall():
            titles = _HEADING.findall(opening)[:MAX_HEADINGS] or [opening]
            name = " ".join([filename.removesuffix(".pdf"), *(title[:MAX_CHARS] for title in titles)])
            params: dict[str, Any] = {"user": user_id, "document": document_id, "prefix": NAME_PREFIX}
            params |= {"configuration": CONFIGURATIONS.get(language or "", ENGLISH), "words": split_words(name)}
            cursor.execute(INSERT_NAME, params)


def replace_name(document_id: UUID) -> None:
    """Write the name anew after a rename; call in a transaction that holds the locks of the document's jobs."""
    with connection.cursor() as cursor:
        cursor.execute(DELETE_NAME, [document_id, NAME_PREFIX])
    index_name(document_id)


def score_names(postings: Postings) -> NDArray[np.float64]:
    """Return, for each document, the sum of the idf of the query's words in its name, among the names.

    A word in more than half of the names tells none of them from the others.
    """
    scores = np.zeros(postings.documents.size)
    for named in postings.names:
        if 0 < 2 * named.size <= postings.document_count:
            scores[named] += log(1 + (postings.document_count - named.size + 0.5) / (named.size + 0.5))
    return scores


def named_documents(postings: Postings, scores: NDArray[np.float64], document_ids: Sequence[UUID]) -> dict[UUID, float]:
    """Return the scores of those documents that the query names, and of the one that it names most clearly."""
    if not scores.any():
        return {}
    candidates = np.array([each.bytes for each in document_ids], "S16")
    places = [*np.flatnonzero(np.isin(postings.documents, candidates) & (scores > 0)), np.argmax(scores)]
    return {postings.document_id(at): float(scores[at]) for at in places}
