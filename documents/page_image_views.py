"""The picture of a page in the API."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.utils.http import parse_etags
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.views import APIView

from accounts.permissions import caller_id
from documents import page_images, rate_limits
from documents.models import Document
from documents.serializers import PageImageRequest
from documents.views import tenant_document

HEADERS = {
    # Kept by who asked alone, and not for long: a deleted document's pages must not outlive it by much.
    "Cache-Control": "private, max-age=300",
    "Vary": "Authorization, Cookie",
    "Content-Security-Policy": "default-src 'none'",
    "X-Content-Type-Options": "nosniff",
}


class IgnoreAcceptHeader(BaseContentNegotiation):
    """Whoever accepts images only is still told in JSON why there is none."""

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
        responses={(200, page_images.MIME): OpenApiTypes.BINARY, 304: None},
    )
    def get(self, request: Request, document_id: UUID, page: int) -> HttpResponse:
        """Show a page of the original, counted from 1."""
        asked = PageImageRequest(data=request.query_params)
        asked.is_valid(raise_exception=True)
        document = tenant_document(request, document_id)
        page_images.require_page(document, page)
        tag = _tag(document, page, **asked.validated_data)
        headers = HEADERS | {"ETag": tag}
        if tag in parse_etags(request.headers.get("If-None-Match", "")):
            return HttpResponse(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        rate_limits.spend(caller_id(request))
        picture = page_images.render_page(document, page, **asked.validated_data)
        return HttpResponse(picture, content_type=page_images.MIME, headers=headers)


def _tag(document: Document, page: int, width: int) -> str:
    drawn = f"{document.file_sha256}:{page}:{width}:{page_images.VERSION}"
    return f'"{hashlib.sha256(drawn.encode()).hexdigest()}"'
