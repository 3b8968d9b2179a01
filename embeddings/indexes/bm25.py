"""The words of a document's findable passages, counted for BM25 when the passages are committed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import numpy as np
from django.db import connection
from numpy.typing import NDArray

K1 = 1.5  # better than 1.2 on both dev sets of docs/retrieval.md
B = 0.75
HEADING = 2  # a word of the heading path counts like so many in the text
AVERAGE = 130  # words of a passage: frozen, so that one document's impacts never depend on another's
SCALE = 1000  # impacts, BM25's part of the term frequency, are kept as thousandths
# A passage in which a term stands, as int4send and int2send write it, sorted by ordinal.
POSTING = np.dtype([("ord", ">i4"), ("impact", ">i2")])
EVERY_PASSAGE = ""  # the term whose rows count the passages

FORGET = "DELETE FROM document_terms WHERE document_id = %(document)s"
# Weight A marks the words of the headings. Bytes are compared, not letters of a language: a sort in a third of the
# time. Sorted, so that whoever writes the same rows waits in one order.
WRITE = """
    WITH passages AS MATERIALIZED (
        SELECT user_id, chunk_ord, search,
               (SELECT coalesce(sum(cardinality(positions)), 0) FROM unnest(search))::float8 AS size
        FROM document_chunks WHERE document_id = %(document)s AND embedding IS NOT NULL),
    words AS (
        SELECT w.lexeme COLLATE "C" AS term, p.user_id, p.chunk_ord,
               %(k1)s * (1 - %(b)s + %(b)s * p.size / %(average)s) AS norm,
               (cardinality(positions) + %(more)s * cardinality(array_positions(weights, 'A')))::float8 AS tf
        FROM passages p, unnest(p.search) w)
    INSERT INTO document_terms (user_id, document_id, term, postings)
    SELECT user_id, %(document)s, term, string_agg(
        int4send(chunk_ord) || int2send(round(%(scale)s * tf * (%(k1)s + 1) / (tf + norm))::smallint), ''
        ORDER BY chunk_ord)
    FROM words GROUP BY user_id, term
    UNION ALL
    SELECT user_id, %(document)s, %(every)s, string_agg(int4send(chunk_ord) || int2send(0::smallint), ''
        ORDER BY chunk_ord)
    FROM passages GROUP BY user_id
    ORDER BY 1, 3"""


def index_document(document_id: UUID) -> None:
    """Replace the document's rows by those of its passages that have a vector.

    Call inside the transaction that commits the vectors.
    """
    values: dict[str, Any] = {
        "document": document_id,
        "more": HEADING - 1,
        "scale": SCALE,
        "k1": K1,
        "b": B,
        "average": AVERAGE,
        "every": EVERY_PASSAGE,
    }
    with connection.cursor() as cursor:
        cursor.execute(f"{FORGET};{WRITE}", values)


def read_postings(postings: bytes | memoryview) -> NDArray[Any]:
    """Return postings as records of ``ord`` and ``impact``."""
    return np.frombuffer(postings, POSTING)
