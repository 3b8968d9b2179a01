"""BM25 index: postings of a document's searchable chunks, written when its vectors are committed."""

from typing import Any
from uuid import UUID

import numpy as np
from django.db import connection
from numpy.typing import NDArray

K1 = 1.5  # better than 1.2 on both dev sets of docs/retrieval.md
B = 0.75
HEADING_WEIGHT = 2  # a word of the heading path counts like so many in the text
AVERAGE_LENGTH = 130  # words of a chunk: frozen, so that one document's impacts never depend on another's
SCALE = 1000  # impacts, BM25's part of the term frequency, are kept as thousandths
# A chunk with a term, as int4send and int2send write it, sorted by ordinal.
POSTING = np.dtype([("ord", ">i4"), ("impact", ">i2")])
EVERY_CHUNK = ""  # the term whose postings count the chunks

DELETE = "DELETE FROM document_terms WHERE document_id = %(document)s"
# Weight A marks the words of headings. Collation "C" compares bytes: a sort in a third of the time. Sorted, so that
# concurrent writers of the same rows lock them in one order.
INSERT = """
    WITH chunks AS MATERIALIZED (
        SELECT user_id, chunk_ord, search,
               (SELECT coalesce(sum(cardinality(positions)), 0) FROM unnest(search))::float8 AS size
        FROM document_chunks WHERE document_id = %(document)s AND embedding IS NOT NULL),
    words AS (
        SELECT w.lexeme COLLATE "C" AS term, p.user_id, p.chunk_ord,
               %(k1)s * (1 - %(b)s + %(b)s * p.size / %(average)s) AS norm,
               (cardinality(positions) + %(more)s * cardinality(array_positions(weights, 'A')))::float8 AS tf
        FROM chunks p, unnest(p.search) w)
    INSERT INTO document_terms (user_id, document_id, term, postings)
    SELECT user_id, %(document)s, term, string_agg(
        int4send(chunk_ord) || int2send(round(%(scale)s * tf * (%(k1)s + 1) / (tf + norm))::smallint), ''
        ORDER BY chunk_ord)
    FROM words GROUP BY user_id, term
    UNION ALL
    SELECT user_id, %(document)s, %(every)s, string_agg(int4send(chunk_ord) || int2send(0::smallint), ''
        ORDER BY chunk_ord)
    FROM chunks GROUP BY user_id
    ORDER BY 1, 3"""


def index_document(document_id: UUID) -> None:
    """Replace the document's postings by those of its chunks that have a vector.

    Call inside the transaction that commits the vectors.
    """
    params: dict[str, Any] = {
        "document": document_id,
        "more": HEADING_WEIGHT - 1,
        "scale": SCALE,
        "k1": K1,
        "b": B,
        "average": AVERAGE_LENGTH,
        "every": EVERY_CHUNK,
    }
    with connection.cursor() as cursor:
        cursor.execute(f"{DELETE};{INSERT}", params)


def read_postings(postings: bytes | memoryview) -> NDArray[Any]:
    """Return postings as records of ``ord`` and ``impact``."""
    return np.frombuffer(postings, POSTING)
