"""GET /documents/<id>/chunks: the passages of a document."""

from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.authentication import caller_id
from accounts.pagination import NewestFirstPagination
from documents.views import tenant_document
from embeddings import chunk_store
from embeddings.serializers import ChunkResponse


class InOrder(NewestFirstPagination):
    ordering = "chunk_ord"


class ChunksView(APIView):
    pagination_class = InOrder

    @extend_schema(operation_id="document_chunks", responses=ChunkResponse(many=True))
    def get(self, request: Request, document_id: UUID) -> Response:
        """Show a document's passages in reading order."""
        document = tenant_document(request, document_id)
        chunks = chunk_store.document_chunks(document).filter(user_id=caller_id(request)).defer("embedding")
        return InOrder.tenant_page(chunks, ChunkResponse, view=self)
