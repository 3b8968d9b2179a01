"""Fake reranker: the protocols of Cohere and Jina, and of Text Embeddings Inference, by which model a request names."""

import json
from typing import Any

from testing.fakes.http_messages import ErrorResponse, Request, Response, json_response
from testing.fakes.server import Server, sleep

KEY, MODEL = "rerank-key", "rerank-v3"


class RerankerServer(Server):
    """``url`` is the address of /rerank. Texts score by how often they have the word ``favourite``."""

    name = "reranker"
    settings = ("delay", "favourite", "key")

    def __init__(self, *, key: str = KEY, favourite: str = "favourite", **server: Any) -> None:
        super().__init__(**server)
        self.key, self.favourite = key, favourite

    @property
    def url(self) -> str:
        return f"{super().url}/rerank"

    def respond(self, request: Request) -> Response:
        if request.bearer != self.key:
            raise ErrorResponse(self.error_response(401))
        params = json.loads(request.body)
        is_hosted = "model" in params
        texts = params["documents" if is_hosted else "texts"]
        self.ledger.sell(texts, calls=1)
        sleep(self.delay)
        scores = [text.lower().count(self.favourite) / 10 for text in texts]
        order = sorted(range(len(texts)), key=lambda at: -scores[at])[: params.get("top_n")]
        if is_hosted:
            return json_response({"results": [{"index": at, "relevance_score": scores[at]} for at in order]})
        return json_response([{"index": at, "score": scores[at]} for at in order])

    def error_response(self, status: int, code: str | None = None) -> Response:
        return json_response({"message": code or f"The fake answers {status}."}, status)
