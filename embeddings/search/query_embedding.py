"""The vector of a question, bought once for all that is searched with it."""

from __future__ import annotations

from uuid import UUID

from embeddings import active_model, billed_calls
from embeddings.active_model import EmbeddingModel
from embeddings.error_codes import SEARCH_UNAVAILABLE
from embeddings.search.query import Query


class QueryEmbedding:
    """What was bought for one request of ``user_id``."""

    def __init__(self, user_id: UUID) -> None:
        self._user_id = user_id
        self._vectors: dict[tuple[str, str, str], list[float]] = {}

    def vector(self, live: EmbeddingModel, question: Query) -> list[float]:
        """Embed the question with the model of what it is to meet. Raises ``Refused`` while that cannot be done."""
        wanted = (live.model, live.version, question.text)
        if wanted not in self._vectors:
            embedder = active_model.require_embedder(live)
            with billed_calls.as_api_errors(SEARCH_UNAVAILABLE, "Search is away; try again shortly.", field="query"):
                made = billed_calls.embed_texts(embedder, [question.text], user_id=self._user_id, stage="search")
            self._vectors[wanted] = made[0].tolist()
        return self._vectors[wanted]
