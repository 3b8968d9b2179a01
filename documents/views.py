"""Uploads and documents in the API: check the input, call one service, shape the answer."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from django.db.models import JSONField, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.errors import not_found
from accounts.pagination import NewestFirstPagination
from accounts.permissions import caller_id
from accounts.rls import as_tenant
from documents import services
from documents.models import Document
from documents.serializers import DocumentResponse, LinkResponse, UploadRequest, UploadResponse
from jobs import services as jobs


def tenant_documents(request: Request) -> QuerySet[Document]:
    """Return the caller's documents, each with ``plan``, what its newest job has planned and spared."""
    newest = jobs.tenant_jobs().filter(document=OuterRef("pk")).order_by("-created_at", "-job_id")
    plan = Coalesce(Subquery(newest.values("payload")[:1]), Value({}, JSONField()))
    return Document.objects.filter(user_id=caller_id(request)).annotate(plan=plan)


def tenant_document(request: Request, document_id: UUID) -> Document:
    """Return a document of the caller's; what is another tenant's does not exist."""
    with as_tenant(caller_id(request)):
        document = tenant_documents(request).filter(pk=document_id).first()
    if document is None:
        raise not_found()
    return document


class UploadView(APIView):
    @extend_schema(operation_id="upload", request=UploadRequest, responses=UploadResponse)
    def post(self, request: Request) -> Response:
        """Declare a file; put its bytes to the signed URL within five minutes."""
        asked = UploadRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        declared = services.declare(user_id=caller_id(request), **asked.validated_data)
        url = request.build_absolute_uri(declared.signed_url)
        return Response(
            UploadResponse(
                {
                    "job_id": declared.job_id,
                    "document_id": declared.document_id,
                    "signed_url": url,
                    "upload_expires_at": declared.upload_expires_at,
                }
            ).data
        )


class DocumentsView(APIView):
    pagination_class = NewestFirstPagination

    @extend_schema(operation_id="documents", responses=DocumentResponse(many=True))
    def get(self, request: Request) -> Response:
        """Show the caller's documents, the newest first."""
        pages = NewestFirstPagination()
        with as_tenant(caller_id(request)):
            shown = DocumentResponse(
                pages.paginate_queryset(tenant_documents(request), request, view=self), many=True
            ).data
        return pages.get_paginated_response(shown)


class DocumentView(APIView):
    @extend_schema(operation_id="document", responses=DocumentResponse)
    def get(self, request: Request, document_id: UUID) -> Response:
        """Show one document of the caller's."""
        return Response(DocumentResponse(tenant_document(request, document_id)).data)

    @extend_schema(operation_id="delete_document", responses={204: None})
    def delete(self, request: Request, document_id: UUID) -> Response:
        """Remove a document with everything that was made of it, whatever is being done with it."""
        services.delete(tenant_document(request, document_id))
        return Response(status=204)


class OriginalView(APIView):
    @extend_schema(operation_id="document_original", responses=LinkResponse)
    def get(self, request: Request, document_id: UUID) -> Response:
        """Answer a signed URL of the original PDF."""
        return _link(request, services.sign_original_url(tenant_document(request, document_id)))


class ParsedView(APIView):
    @extend_schema(operation_id="document_parsed", responses=LinkResponse)
    def get(self, request: Request, document_id: UUID) -> Response:
        """Answer a signed URL of the parsed markdown."""
        return _link(request, services.sign_parsed_url(tenant_document(request, document_id)))


def _link(request: Request, url: str) -> Response:
    link = {"signed_url": request.build_absolute_uri(url), "expires_in": settings.SIGNED_URL_SECONDS}
    return Response(LinkResponse(link).data)
