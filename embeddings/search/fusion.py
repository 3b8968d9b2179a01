"""Reciprocal rank fusion of vector search, BM25 and rows of tables, weighted by model."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest
from uuid import UUID

from embeddings.embedders.wordllama import WordLlama
from embeddings.search.bm25 import TextHit
from embeddings.search.vector_search import VectorHit

# Measured on the dev questions of docs/retrieval.md. With the usual 60, a chunk that both retrievers rank thirtieth
# overtakes one that a single retriever ranks first: hit@5 of .64 where 3 gives .75.
K = 3  # how slowly the weight of a rank falls
TEXT_WEIGHT = 1.0
VECTOR_WEIGHT = 1.0
# A row that has most of the query's words, by their idf, outweighs a passage that has them in many places. Below this
# share, tables would push prose aside: .508 became .458 at hit@1 of text on the same questions without it.
LEAST_ROW_SHARE = 0.6
ROW_WEIGHT = 0.5
# Averaged word vectors know less than a model that reads sentences (same measurement).
VECTOR_WEIGHTS = {WordLlama.model: 0.5}


@dataclass(frozen=True, slots=True)
class VectorScore:
    rank: int  # from 1
    similarity: float


@dataclass(frozen=True, slots=True)
class TextScore:
    rank: int  # from 1
    bm25: float


@dataclass(frozen=True, slots=True)
class RowScore:
    """The best row of the chunk's tables, numbered from 0, and its rank among such rows."""

    rank: int  # from 1
    bm25: float
    number: int


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """Rank and score by each retriever; None: it did not return the chunk."""

    vector: VectorScore | None
    text: TextScore | None
    row: RowScore | None = None


@dataclass(frozen=True, slots=True)
class RankedChunk:
    chunk_id: UUID
    score: float
    parts: ScoreParts


def fuse(model: str, vector_hits: Sequence[VectorHit], text_hits: Sequence[TextHit], k: int) -> list[RankedChunk]:
    """Return at most ``k`` chunks of both rankings, best first, equal scores in the order of their id."""
    weight = VECTOR_WEIGHTS.get(model, VECTOR_WEIGHT)
    by_vector = {hit.chunk_id: VectorScore(rank, hit.similarity) for rank, hit in enumerate(vector_hits, 1)}
    by_text = {hit.chunk_id: TextScore(rank, hit.bm25) for rank, hit in enumerate(text_hits, 1)}
    scores = {chunk_id: weight / (K + score.rank) for chunk_id, score in by_vector.items()}
    for chunk_id, text_score in by_text.items():
        scores[chunk_id] = scores.get(chunk_id, 0.0) + TEXT_WEIGHT / (K + text_score.rank)
    by_row = _rank_rows(text_hits)
    for chunk_id, row in by_row.items():
        scores[chunk_id] += ROW_WEIGHT / (K + row.rank)
    best = nsmallest(k, scores, key=lambda chunk_id: (-scores[chunk_id], chunk_id))
    return [
        RankedChunk(each, scores[each], ScoreParts(by_vector.get(each), by_text.get(each), by_row.get(each)))
        for each in best
    ]


def _rank_rows(text_hits: Sequence[TextHit]) -> dict[UUID, RowScore]:
    rows = [(hit.row, hit.chunk_id) for hit in text_hits if hit.row and hit.row.share >= LEAST_ROW_SHARE]
    rows.sort(key=lambda pair: (-pair[0].bm25, pair[1]))
    return {chunk_id: RowScore(rank, row.bm25, row.number) for rank, (row, chunk_id) in enumerate(rows, 1)}
