"""GET, PATCH and DELETE /documents/<id>: renaming a document changes the index of words."""

from uuid import UUID

from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.errors import raises
from documents import error_codes, tags, views
from documents.serializers import DocumentChanges, DocumentResponse
from embeddings.document_rename import rename_document


class DocumentView(views.DocumentView):
    @extend_schema(
        operation_id="change_document",
        request=DocumentChanges,
        responses=DocumentResponse,
        extensions=raises(
            error_codes.INVALID_FILENAME,
            error_codes.FILENAME_TOO_LONG,
            error_codes.UNKNOWN_TAG,
            error_codes.TOO_MANY_TAGS,
        ),
    )
    def patch(self, request: Request, document_id: UUID) -> Response:
        """Rename a document, or replace its tags."""
        document, body = views.tenant_document(request, document_id), DocumentChanges(data=request.data)
        body.is_valid(raise_exception=True)
        changes = body.validated_data
        with transaction.atomic():  # both, or neither
            if "filename" in changes:
                rename_document(document, changes["filename"])
            if "tags" in changes:
                tags.set_tags(document, changes["tags"])
        return Response(DocumentResponse(views.tenant_document(request, document_id)).data)
