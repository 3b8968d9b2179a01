"""API views of uploads, documents, their files and their page images."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import JSONField, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, JSONObject
from django.http import HttpResponse
from django.utils.http import parse_etags
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import idempotency_keys, openapi_parameters, rate_limit
from accounts.authentication import caller_id
from accounts.common_error_codes import IDEMPOTENCY_KEY_REUSED, INVALID_REQUEST, UNAVAILABLE, not_found
from accounts.errors import raises
from accounts.pagination import NewestFirstPagination
from accounts.rate_limit import LOOK_LIMIT_REACHED, UPLOAD_LIMIT_REACHED
from accounts.rls import as_tenant
from documents import error_codes, services, tags
from documents.models import Document, DocumentTag
from documents.page_images import renderer, thumbnail_renderer
from documents.serializers import DocumentResponse, LinkResponse, PageImageRequest, UploadRequest, UploadResponse
from jobs.error_codes import JOB_ALREADY_ACTIVE, JOB_STATE_CHANGED, PIPELINE_UNKNOWN, STORAGE_UNAVAILABLE
from jobs.services import tenant_jobs


def tenant_documents(request: Request) -> QuerySet[Document]:
    """Return the caller's documents, each with ``tag_list`` and with ``plan``, the payload of its newest job."""
    user_id = caller_id(request)
    own = DocumentTag.objects.filter(document=OuterRef("pk"), user_id=user_id).order_by("tag__key")
    tag_list = ArraySubquery(own.values(data=JSONObject(tag_id="tag_id", name="tag__name", color="tag__color")))
    newest = tenant_jobs().filter(document=OuterRef("pk")).order_by("-created_at", "-job_id")
    plan = Coalesce(Subquery(newest.values("payload")[:1]), Value({}, JSONField()))
    return Document.objects.filter(user_id=user_id).annotate(plan=plan, tag_list=tag_list)


def tenant_document(request: Request, document_id: UUID) -> Document:
    """Return a document of the caller's; raise 404 for another tenant's."""
    with as_tenant(caller_id(request)):
        document = tenant_documents(request).filter(pk=document_id).first()
    if document is None:
        raise not_found()
    return document


TAG_PARAMETER = OpenApiParameter(
    "tag",
    {"type": "array", "items": {"type": "string", "format": "uuid"}, "maxItems": tags.MAX_FILTER_TAGS},
    OpenApiParameter.QUERY,
    description="Only documents with this tag; repeated, with any of these.",
)
PAGE_IMAGE_ERRORS = (
    error_codes.PAGE_NOT_FOUND,
    error_codes.NOT_READY,
    error_codes.PAGE_NOT_SHOWN,
    LOOK_LIMIT_REACHED,
    STORAGE_UNAVAILABLE,
    UNAVAILABLE,
    error_codes.INSUFFICIENT_STORAGE,
)
PAGE_IMAGE_HEADERS = {
    # Cached by this user only, and not for long: a deleted document's pages must not outlive it by much.
    "Cache-Control": "private, max-age=300",
    "Vary": "Authorization, Cookie",
    "Content-Security-Policy": "default-src 'none'",
    "X-Content-Type-Options": "nosniff",
}


class UploadView(APIView):
    @extend_schema(
        operation_id="upload",
        request=UploadRequest,
        responses=UploadResponse,
        parameters=[openapi_parameters.IDEMPOTENCY_KEY],
        extensions=raises(
            *error_codes.UPLOAD_INVALID,
            IDEMPOTENCY_KEY_REUSED,
            UPLOAD_LIMIT_REACHED,
            JOB_ALREADY_ACTIVE,
            JOB_STATE_CHANGED,
            PIPELINE_UNKNOWN,
        ),
    )
    def post(self, request: Request) -> Response:
        """Declare a file; put its bytes to the signed URL within five minutes."""
        serializer = UploadRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        user_id, upload = caller_id(request), serializer.validated_data
        repeatable = idempotency_keys.idempotent_request(request, user_id=user_id, route="upload", body=upload)
        declared = services.declare(user_id=user_id, **upload, request=repeatable)
        signed_url = request.build_absolute_uri(declared.signed_url)
        return Response(UploadResponse(replace(declared, signed_url=signed_url)).data)


class DocumentsView(APIView):
    pagination_class = NewestFirstPagination

    @extend_schema(
        operation_id="documents",
        parameters=[TAG_PARAMETER],
        responses=DocumentResponse(many=True),
        extensions=raises(INVALID_REQUEST),
    )
    def get(self, request: Request) -> Response:
        """List the caller's documents, the newest first."""
        own = tenant_documents(request)
        if chosen := tags.parse_tag_ids(request.query_params.getlist("tag")):
            own = own.filter(tags.has_any_tag(caller_id(request), chosen))
        return NewestFirstPagination.tenant_page(own, DocumentResponse, view=self)


class DocumentView(APIView):
    @extend_schema(operation_id="document", responses=DocumentResponse)
    def get(self, request: Request, document_id: UUID) -> Response:
        """Show one document of the caller's."""
        return Response(DocumentResponse(tenant_document(request, document_id)).data)

    @extend_schema(operation_id="delete_document", responses={204: None})
    def delete(self, request: Request, document_id: UUID) -> Response:
        """Delete a document with everything that was made of it, whatever stage its job is at."""
        services.delete(tenant_document(request, document_id))
        return Response(status=204)


class OriginalView(APIView):
    @extend_schema(operation_id="document_original", responses=LinkResponse, extensions=raises(error_codes.NOT_READY))
    def get(self, request: Request, document_id: UUID) -> Response:
        """Return a signed URL of the original PDF."""
        return _link_response(request, services.sign_original_url(tenant_document(request, document_id)))


class ParsedView(APIView):
    @extend_schema(operation_id="document_parsed", responses=LinkResponse, extensions=raises(error_codes.NOT_READY))
    def get(self, request: Request, document_id: UUID) -> Response:
        """Return a signed URL of the parsed markdown."""
        return _link_response(request, services.sign_parsed_url(tenant_document(request, document_id)))


def _link_response(request: Request, url: str) -> Response:
    link = {"signed_url": request.build_absolute_uri(url), "expires_in": settings.SIGNED_URL_SECONDS}
    return Response(LinkResponse(link).data)


class IgnoreAcceptHeader(BaseContentNegotiation):
    """Render errors as JSON even for a client that accepts only images."""

    def select_parser(self, request: Request, parsers: Iterable[Any]) -> Any:
        return next(iter(parsers))

    def select_renderer(self, request: Request, renderers: Iterable[Any], format_suffix: str | None = None) -> Any:
        renderer = next(iter(renderers))
        return renderer, renderer.media_type


class PageImageView(APIView):
    content_negotiation_class = IgnoreAcceptHeader

    @extend_schema(
        operation_id="document_page",
        parameters=[PageImageRequest],
        responses={(200, renderer.MIME): OpenApiTypes.BINARY, 304: None},
        extensions=raises(INVALID_REQUEST, *PAGE_IMAGE_ERRORS),
    )
    def get(self, request: Request, document_id: UUID, page: int) -> HttpResponse:
        """Show a page of the original, counted from 1."""
        serializer = PageImageRequest(data=request.query_params)
        serializer.is_valid(raise_exception=True)
        width = serializer.validated_data["width"]
        document = tenant_document(request, document_id)
        renderer.require_page(document, page)
        headers = _image_headers(f"{document.file_sha256}:{page}:{width}:{renderer.VERSION}")
        if headers["ETag"] in parse_etags(request.headers.get("If-None-Match", "")):
            return HttpResponse(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        rate_limit.check_rate(rate_limit.PAGE_VIEWS, caller_id(request))
        image = renderer.render_page(document, page, width=width)
        return HttpResponse(image, content_type=renderer.MIME, headers=headers)


class ThumbnailView(APIView):
    content_negotiation_class = IgnoreAcceptHeader

    @extend_schema(
        operation_id="document_thumbnail",
        responses={(200, renderer.MIME): OpenApiTypes.BINARY, 304: None},
        extensions=raises(*PAGE_IMAGE_ERRORS),
    )
    def get(self, request: Request, document_id: UUID) -> HttpResponse:
        """Show a small image of the first page."""
        document = tenant_document(request, document_id)
        content = f"{document.file_sha256}:thumbnail:{thumbnail_renderer.WIDTH}:{renderer.VERSION}"
        headers = _image_headers(content)
        if headers["ETag"] in parse_etags(request.headers.get("If-None-Match", "")):
            return HttpResponse(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        image = thumbnail_renderer.get_thumbnail(document)
        return HttpResponse(image, content_type=renderer.MIME, headers=headers)


def _image_headers(content: str) -> dict[str, str]:
    return PAGE_IMAGE_HEADERS | {"ETag": f'"{hashlib.sha256(content.encode()).hexdigest()}"'}
