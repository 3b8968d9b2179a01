"""Two rankings made one: reciprocal ranks, weighted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from embeddings.embedders.local import WordLlama
from embeddings.search.nearest import Hit
from embeddings.search.words import Match

# Measured on the dev questions of docs/retrieval.md. The usual 60 lets what both arms rank thirtieth overtake what one
# ranks first: hit@5 of .64 where 3 gives .75.
K = 3  # how slowly a rank's worth falls
TEXT_WEIGHT = 1.0
VECTOR_WEIGHT = 1.0
# Averaged word vectors know less than a model that reads sentences (same measurement).
VECTOR_WEIGHTS = {WordLlama.model: 0.5}


@dataclass(frozen=True, slots=True)
class ByVector:
    rank: int  # from 1
    similarity: float


@dataclass(frozen=True, slots=True)
class ByText:
    rank: int  # from 1
    bm25: float


@dataclass(frozen=True, slots=True)
class Parts:
    """What each arm said of a passage; None: it did not name it."""

    vector: ByVector | None
    text: ByText | None


@dataclass(frozen=True, slots=True)
class Ranked:
    chunk_id: UUID
    score: float
    parts: Parts


def fuse(model: str, vectors: Sequence[Hit], texts: Sequence[Match]) -> list[Ranked]:
    """Return all that either arm found, the best first; what is equally good in the order of its id."""
    weight = VECTOR_WEIGHTS.get(model, VECTOR_WEIGHT)
    by_vector = {hit.chunk_id: ByVector(rank, hit.similarity) for rank, hit in enumerate(vectors, 1)}
    by_text = {match.chunk_id: ByText(rank, match.bm25) for rank, match in enumerate(texts, 1)}
    found = []
    for chunk_id in by_vector | by_text:
        parts = Parts(by_vector.get(chunk_id), by_text.get(chunk_id))
        score = weight / (K + parts.vector.rank) if parts.vector else 0.0
        score += TEXT_WEIGHT / (K + parts.text.rank) if parts.text else 0.0
        found.append(Ranked(chunk_id, score, parts))
    return sorted(found, key=lambda ranked: (-ranked.score, ranked.chunk_id))
