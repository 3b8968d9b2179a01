"""The text arm: BM25 over the words of the tenant's own passages."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any
from uuid import UUID

from django.db import connection

from embeddings.search.nearest import Scope
from embeddings.terms import EVERY_PASSAGE, K1, SCALE

LEXEMES = "SELECT tsvector_to_array(to_tsvector('english', %s))"

# A passage, its score, and the most that any passage can have that was left out; None when none was.
Row = tuple[UUID, float, float | None]


@dataclass(frozen=True, slots=True)
class Match:
    """A passage in which words of the question stand; ``bm25`` says how well they single it out."""

    chunk_id: UUID
    bm25: float


def lexemes(text: str) -> list[str]:
    """Return a text's words as full text search knows them: stemmed, without stop words, each once."""
    with connection.cursor() as cursor:
        cursor.execute(LEXEMES, [text])
        found: list[str] = cursor.fetchone()[0]
    return found


# The rarer words name the candidates: as many words as stand in ENOUGH places together. What the commoner ones could
# add is bounded, so it is known whether a passage with none of the rare may be among the best; if so, all are counted,
# as they are at once where even the rarest is in every fourth passage.
ENOUGH = 15_000
MOST_CANDIDATES = 1_000  # to which the commoner words' part is added, best first
CEILING = (K1 + 1) * SCALE  # no impact reaches it
# How rare a word is among the searched passages, whose number the empty term's rows say.
SCORED = """
    WITH postings AS MATERIALIZED (
        SELECT term, document_id, ords, impacts FROM document_terms
        WHERE user_id = %(user)s AND term = ANY(%(terms)s){documents}),
    counted AS (SELECT term, sum(cardinality(ords))::float8 AS df FROM postings GROUP BY term),
    weighed AS MATERIALIZED (
        SELECT term, ln(1 + (every.df - word.df + 0.5) / (word.df + 0.5)) / %(scale)s AS idf,
               sum(word.df) OVER rarest <= %(enough)s OR row_number() OVER rarest = 1
               OR min(word.df) OVER () > every.df / 4 AS rare
        FROM counted word, (SELECT df FROM counted WHERE term = %(every)s) every
        WHERE term <> %(every)s WINDOW rarest AS (ORDER BY word.df, term)),
    places AS (
        SELECT p.document_id, w.idf, unnest(p.ords) AS ord, unnest(p.impacts) AS impact
        FROM weighed w JOIN postings p USING (term) WHERE w.rare),
    scored AS MATERIALIZED (SELECT document_id, ord, sum(idf * impact) AS bm25 FROM places GROUP BY 1, 2),
    bounds AS MATERIALIZED (
        SELECT (SELECT coalesce(sum(idf), 0) * %(ceiling)s FROM weighed WHERE NOT rare) AS rest,
               (SELECT bm25 FROM scored ORDER BY bm25 DESC OFFSET %(n)s - 1 LIMIT 1) AS last),
    best AS MATERIALIZED (
        SELECT s.* FROM scored s, bounds WHERE %(most)s::int IS NULL OR s.bm25 >= coalesce(last - rest, 0)
        ORDER BY s.bm25 DESC, s.document_id, s.ord LIMIT %(most)s),
    common AS (
        SELECT b.document_id, b.ord, sum(w.idf * p.impacts[array_position(p.ords, b.ord)]) AS bm25
        FROM weighed w JOIN postings p USING (term) JOIN best b USING (document_id)
        WHERE NOT w.rare GROUP BY 1, 2),
    ranked AS (
        SELECT b.document_id, b.ord, b.bm25 + coalesce(common.bm25, 0) AS bm25
        FROM best b LEFT JOIN common USING (document_id, ord) ORDER BY 3 DESC, 1, 2)
    -- In the order that they come in: passages are looked at, best first, until there are enough.
    SELECT c.chunk_id, r.bm25, (
        SELECT greatest(nullif(rest, 0), last, (SELECT min(bm25) + rest FROM best HAVING count(*) = %(most)s))
        FROM bounds)
    FROM ranked r JOIN document_chunks c ON c.document_id = r.document_id AND c.chunk_ord = r.ord
    WHERE c.user_id = %(user)s AND {findable}{conditions}
    ORDER BY r.bm25 DESC, r.document_id, r.ord LIMIT %(n)s"""
OF_LIVE = "c.embed_model = %(model)s AND c.embed_version = %(version)s"
SHADOWED = f"""({OF_LIVE} OR EXISTS (
    SELECT 1 FROM shadow_vectors v WHERE v.chunk_id = c.chunk_id AND v.user_id = %(user)s
    AND v.embed_model = %(model)s AND v.embed_version = %(version)s))"""


def find(scope: Scope, words: list[str], n: int) -> list[Match]:
    """Return the ``n`` best passages in which any of ``words``, lexemes, stands. Call inside ``as_tenant``."""
    if not words:
        return []
    # Of what passes a filter, nothing is known beforehand.
    found = [] if scope.conditions else _found(scope, words, n, enough=ENOUGH, most=MOST_CANDIDATES)
    if not _are_best(found, n):
        found = _found(scope, words, n, enough=inf, most=None)
    return [Match(chunk_id, float(bm25)) for chunk_id, bm25, *_ in found]


def _are_best(found: list[Row], n: int) -> bool:
    """Tell whether no passage that was left out can be among the best."""
    if not found:
        return False
    *_, (_, worst, left_out) = found
    return left_out is None or (len(found) == n and worst >= left_out)


def _found(scope: Scope, words: list[str], n: int, *, enough: float, most: int | None) -> list[Row]:
    values: dict[str, Any] = {
        "user": scope.user_id,
        "terms": [*words, EVERY_PASSAGE],
        "every": EVERY_PASSAGE,
        "scale": SCALE,
        "ceiling": CEILING,
        "enough": enough,
        "model": scope.live.model,
        "version": scope.live.version,
        "documents": list(scope.document_ids or ()),
        "most": most,
        "n": n,
    }
    sql = SCORED.format(
        documents="" if scope.document_ids is None else " AND document_id = ANY(%(documents)s)",
        conditions="".join(f" AND ({condition})" for condition, _ in scope.conditions),
        findable=SHADOWED if scope.live.shadowed else OF_LIVE,
    )
    for _, more in scope.conditions:
        values |= more
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        rows: list[Row] = cursor.fetchall()
    return rows
