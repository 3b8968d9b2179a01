"""POST /internal/embed: vectors for another Accessa deployment, authenticated by a shared secret (spec 002 §1)."""

import hmac
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import extend_schema
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.api_tokens import ALL_SCOPES
from accounts.authentication import NO_TENANT_ID, Caller
from accounts.common_error_codes import INVALID_REQUEST, NOT_FOUND, not_found
from accounts.errors import ApiError, raises
from accounts.models import ApiToken
from embeddings import embedding_calls, error_codes
from embeddings.embedders import registry
from embeddings.embedders.registry import DIMENSIONS
from embeddings.embedders.remote_accessa import RemoteAccessa
from embeddings.serializers import EmbeddingsResponse, EmbedRequest
from vendors.error_codes import BUDGET_SPENT

MAX_TEXTS = 256
MAX_CHARS = 32_000  # of one text; the body as a whole is limited by DATA_UPLOAD_MAX_MEMORY_SIZE


class BrainAuthentication(BaseAuthentication):
    """``Authorization: Bearer <BRAIN_API_SECRET>``, or the secret alone in ``X-Brain-API-Secret``."""

    def authenticate(self, request: Request) -> tuple[Caller, None] | None:
        if not settings.BRAIN_API_SECRET:
            raise not_found()
        if (header := request.headers.get("X-Brain-API-Secret")) is not None:
            secret = header.encode("latin-1", "replace")
        else:
            scheme, _, secret = get_authorization_header(request).partition(b" ")
            if scheme.lower() != b"bearer":
                return None
            secret = secret.strip()
        if not hmac.compare_digest(secret, settings.BRAIN_API_SECRET.encode()):
            raise AuthenticationFailed
        return Caller(NO_TENANT_ID, ALL_SCOPES), None

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="accessa"'


class BrainScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "embeddings.internal_embed_api.BrainAuthentication"
    name = "brain"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "BRAIN_API_SECRET; X-Brain-API-Secret does as well."}


class EmbedView(APIView):
    """Spec 002 §1. Without BRAIN_API_SECRET the endpoint does not exist."""

    authentication_classes = (BrainAuthentication,)
    required_scope = ApiToken.Scope.SERVICE

    @extend_schema(
        operation_id="internal_embed",
        request=EmbedRequest,
        responses=EmbeddingsResponse,
        extensions=raises(*error_codes.EMBED_ERRORS, BUDGET_SPENT, NOT_FOUND),
    )
    def post(self, request: Request) -> Response:
        """Embed texts for another deployment, which knows the shared secret."""
        serializer = EmbedRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        return Response(EmbeddingsResponse(embed_for_deployment(serializer.validated_data["texts"])).data)


def embed_for_deployment(texts: Sequence[str]) -> dict[str, Any]:
    """Embed ``texts`` with this deployment's model, on the platform's bill. Raises ``ApiError``."""
    if not texts:
        raise ApiError(INVALID_REQUEST, "Send at least one text.", field="texts")
    if len(texts) > MAX_TEXTS:
        raise ApiError(error_codes.TOO_MANY_TEXTS, f"Send at most {MAX_TEXTS} texts at once.", field="texts")
    if not all(text.strip() for text in texts):
        raise ApiError(error_codes.EMPTY_TEXT, field="texts")
    if any(len(text) > MAX_CHARS for text in texts):
        raise ApiError(error_codes.TEXT_TOO_LONG, f"A text is longer than {MAX_CHARS} characters.", field="texts")
    embedder = registry.get_embedder(settings.EMBEDDER)
    if isinstance(embedder, RemoteAccessa):
        detail = "This deployment asks another one for its vectors: the two would ask in circles."
        raise ApiError(error_codes.NO_MODEL_HERE, detail)
    detail = "The embedder is away; try again shortly."
    with embedding_calls.as_api_errors(error_codes.EMBEDDER_UNAVAILABLE, detail, field="texts"):
        vectors = embedding_calls.embed_texts(embedder, texts, user_id=NO_TENANT_ID, stage="internal_embed")
        return {"embeddings": vectors.tolist(), "model": embedder.model, "dim": DIMENSIONS}
