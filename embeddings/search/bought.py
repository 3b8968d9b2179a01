"""The vector of a question, bought once for all that is searched with it."""

from __future__ import annotations

from uuid import UUID

from embeddings import buying
from embeddings import live as pointers
from embeddings.live import Live
from embeddings.search.asking import Question


class Bought:
    """What was bought for one request of ``user_id``."""

    def __init__(self, user_id: UUID) -> None:
        self._user_id = user_id
        self._vectors: dict[tuple[str, str, str], list[float]] = {}

    def vector(self, live: Live, question: Question) -> list[float]:
        """Embed the question with the model of what it is to meet. Raises ``Refused`` while that cannot be done."""
        wanted = (live.model, live.version, question.text)
        if wanted not in self._vectors:
            embedder = pointers.embedder(live)
            with buying.answerable("SEARCH_UNAVAILABLE", "Search is away; try again shortly.", field="query"):
                made = buying.embed(embedder, [question.text], user_id=self._user_id, stage="search")
            self._vectors[wanted] = made[0].tolist()
        return self._vectors[wanted]
