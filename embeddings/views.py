"""Passages in the API, and embedding for others."""

from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.authentication import IsService, caller_id
from accounts.error_codes import NOT_FOUND, raises
from accounts.pagination import NewestFirstPagination
from accounts.rls import as_tenant
from documents.views import tenant_document
from embeddings import chunk_store, internal_api
from embeddings.authentication import BrainAuthentication
from embeddings.error_codes import (
    EMBEDDER_UNAVAILABLE,
    EMPTY_TEXT,
    NO_MODEL_HERE,
    TEXT_REFUSED,
    TEXT_TOO_LONG,
    TOO_MANY_TEXTS,
)
from embeddings.serializers import ChunkResponse, EmbeddingsResponse, EmbedRequest
from vendors.error_codes import BUDGET_SPENT


class InOrder(NewestFirstPagination):
    ordering = "chunk_ord"


class ChunksView(APIView):
    pagination_class = InOrder

    @extend_schema(operation_id="document_chunks", responses=ChunkResponse(many=True))
    def get(self, request: Request, document_id: UUID) -> Response:
        """Show a document's passages in reading order."""
        document = tenant_document(request, document_id)
        pages = InOrder()
        with as_tenant(caller_id(request)):
            chunks = chunk_store.document_chunks(document).filter(user_id=caller_id(request)).defer("embedding")
            page = ChunkResponse(pages.paginate_queryset(chunks, request, view=self), many=True).data
        return pages.get_paginated_response(page)


class EmbedView(APIView):
    """Spec 002 §1. Without BRAIN_API_SECRET the endpoint does not exist."""

    authentication_classes = (BrainAuthentication,)
    permission_classes = (IsService,)

    @extend_schema(
        operation_id="internal_embed",
        request=EmbedRequest,
        responses=EmbeddingsResponse,
        extensions=raises(
            TOO_MANY_TEXTS,
            EMPTY_TEXT,
            TEXT_TOO_LONG,
            TEXT_REFUSED,
            NO_MODEL_HERE,
            BUDGET_SPENT,
            EMBEDDER_UNAVAILABLE,
            NOT_FOUND,
        ),
    )
    def post(self, request: Request) -> Response:
        """Embed texts for another deployment, which knows the shared secret."""
        serializer = EmbedRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        return Response(EmbeddingsResponse(internal_api.embed_for_peer(serializer.validated_data["texts"])).data)
