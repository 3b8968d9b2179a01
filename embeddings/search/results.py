"""What is shown of what was found: whose page and heading it is, and where it stands in the parsed markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection

from embeddings.search.fusion import RankedChunk, ScoreParts

# LIMIT keeps the planner from reading all documents of the tenant, whom the policies do not name to it, for a join.
SHOWN = """
    SELECT c.chunk_id, c.document_id, d.filename, c.chunker_name, c.chunker_version, c.chunk_ord, c.text, c.meta
    FROM document_chunks c,
         LATERAL (SELECT filename FROM documents WHERE document_id = c.document_id LIMIT 1) d
    WHERE c.user_id = %(user)s AND c.chunk_id = ANY(%(found)s)"""


@dataclass(frozen=True, slots=True)
class Passage:
    """What answers a query, with what a citation needs.

    ``text`` is the parsed markdown's [start, end), after its table's header where it continues a table. ``chunk_ids``
    are more than one where neighbours were merged; ``chunk_id`` is the best of them, and ``score`` and ``parts`` are
    its own. ``snippet`` is HTML in which nothing but <mark> is markup.
    """

    chunk_id: UUID
    chunk_ids: list[UUID]
    document_id: UUID
    filename: str
    text: str
    snippet: str
    score: float
    parts: ScoreParts
    pages: list[int]
    headings: list[str]
    start: int
    end: int
    meta: Mapping[str, Any]  # as the chunker wrote it, of the best


@dataclass(frozen=True, slots=True)
class RetrievedChunk:
    """A chunk as it is stored, with what ranked it."""

    ranked: RankedChunk
    document_id: UUID
    filename: str
    chunker: tuple[str, str]
    ord: int
    text: str
    pages: list[int]
    headings: list[str]
    start: int
    end: int
    meta: Mapping[str, Any]

    @property
    def body(self) -> str:
        """Its text without a repeated table header."""
        return self.text[-(self.end - self.start) :] if self.end > self.start else self.text


def fetch_chunks(user_id: UUID, ranking: Sequence[RankedChunk]) -> list[RetrievedChunk]:
    """Fetch what was ranked, in that order; what was deleted meanwhile is left out. Call inside ``as_tenant``."""
    with connection.cursor() as cursor:
        cursor.execute(SHOWN, {"user": user_id, "found": [ranked.chunk_id for ranked in ranking]})
        rows = {chunk_id: row for chunk_id, *row in cursor.fetchall()}
    return [_found(ranked, *rows[ranked.chunk_id]) for ranked in ranking if ranked.chunk_id in rows]


def _found(
    ranked: RankedChunk,
    document_id: UUID,
    filename: str,
    name: str,
    version: str,
    ord: int,
    text: str,
    told: str | None,
) -> RetrievedChunk:
    meta = json.loads(told) if told else {}
    return RetrievedChunk(
        ranked=ranked,
        document_id=document_id,
        filename=filename,
        chunker=(name, version),
        ord=ord,
        text=text,
        pages=meta.get("pages", []),
        headings=meta.get("headings", []),
        start=meta.get("start", 0),
        end=meta.get("end", 0),
        meta=meta,
    )
