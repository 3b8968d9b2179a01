"""POST /internal/embed: vectors for another Accessa deployment (spec 002 §1)."""

from collections.abc import Sequence
from typing import TypedDict

from django.conf import settings

from accounts.authentication import NO_TENANT_ID
from accounts.error_codes import INVALID_REQUEST, ApiError
from embeddings import billed_calls, embedders
from embeddings.embedders import DIMENSIONS
from embeddings.embedders.peer import PeerEmbedder
from embeddings.error_codes import EMBEDDER_UNAVAILABLE, EMPTY_TEXT, NO_MODEL_HERE, TEXT_TOO_LONG, TOO_MANY_TEXTS

MAX_TEXTS = 256
MAX_CHARS = 32_000  # of one text; the body as a whole is limited by DATA_UPLOAD_MAX_MEMORY_SIZE


class Shared(TypedDict):
    embeddings: list[list[float]]
    model: str
    dim: int


def embed_for_peer(texts: Sequence[str]) -> Shared:
    """Embed ``texts`` with this deployment's model; where that costs money, it is on nobody's bill but the platform's.

    Raises ``ApiError``.
    """
    _check(texts)
    embedder = embedders.get_embedder(settings.EMBEDDER)
    if isinstance(embedder, PeerEmbedder):
        detail = "This deployment asks another one for its vectors: the two would ask in circles."
        raise ApiError(NO_MODEL_HERE, detail)
    with billed_calls.as_api_errors(EMBEDDER_UNAVAILABLE, "The embedder is away; try again shortly.", field="texts"):
        vectors = billed_calls.embed_texts(embedder, texts, user_id=NO_TENANT_ID, stage="internal_embed")
        return {"embeddings": vectors.tolist(), "model": embedder.model, "dim": DIMENSIONS}


def _check(texts: Sequence[str]) -> None:
    if not texts:
        raise ApiError(INVALID_REQUEST, "Send at least one text.", field="texts")
    if len(texts) > MAX_TEXTS:
        raise ApiError(TOO_MANY_TEXTS, f"Send at most {MAX_TEXTS} texts at once.", field="texts")
    if not all(text.strip() for text in texts):
        raise ApiError(EMPTY_TEXT, field="texts")
    if any(len(text) > MAX_CHARS for text in texts):
        raise ApiError(TEXT_TOO_LONG, f"A text is longer than {MAX_CHARS} characters.", field="texts")
