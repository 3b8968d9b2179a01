"""Two rankings made one: reciprocal ranks, weighted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest
from uuid import UUID

from embeddings.embedders.wordllama import WordLlama
from embeddings.search.bm25_search import TextHit
from embeddings.search.vector_search import VectorHit

# Measured on the dev questions of docs/retrieval.md. The usual 60 lets what both arms rank thirtieth overtake what one
# ranks first: hit@5 of .64 where 3 gives .75.
K = 3  # how slowly a rank's worth falls
TEXT_WEIGHT = 1.0
VECTOR_WEIGHT = 1.0
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
class ScoreParts:
    """What each arm said of a passage; None: it did not name it."""

    vector: VectorScore | None
    text: TextScore | None


@dataclass(frozen=True, slots=True)
class RankedChunk:
    chunk_id: UUID
    score: float
    parts: ScoreParts


def fuse(model: str, vectors: Sequence[VectorHit], texts: Sequence[TextHit], k: int) -> list[RankedChunk]:
    """Return at most ``k`` of what either arm found, the best first; what is equally good in the order of its id."""
    weight = VECTOR_WEIGHTS.get(model, VECTOR_WEIGHT)
    by_vector = {hit.chunk_id: (rank, hit.similarity) for rank, hit in enumerate(vectors, 1)}
    by_text = {match.chunk_id: (rank, match.bm25) for rank, match in enumerate(texts, 1)}
    scores = {chunk_id: weight / (K + rank) for chunk_id, (rank, _) in by_vector.items()}
    for chunk_id, (rank, _) in by_text.items():
        scores[chunk_id] = scores.get(chunk_id, 0.0) + TEXT_WEIGHT / (K + rank)
    best = nsmallest(k, scores, key=lambda chunk_id: (-scores[chunk_id], chunk_id))
    return [RankedChunk(each, scores[each], _parts(by_vector.get(each), by_text.get(each))) for each in best]


def _parts(by_vector: tuple[int, float] | None, by_text: tuple[int, float] | None) -> ScoreParts:
    return ScoreParts(VectorScore(*by_vector) if by_vector else None, TextScore(*by_text) if by_text else None)
