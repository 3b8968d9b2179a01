"""Cursor pagination of all lists: each page is equally fast, and rows that arrive meanwhile repeat none."""

from typing import Any

from django.core.exceptions import ValidationError
from django.db import DataError
from django.db.models import QuerySet
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView

from accounts.authentication import caller_id
from accounts.rls import as_tenant


class NewestFirstPagination(CursorPagination):
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200
    ordering = "-created_at"

    @classmethod
    def tenant_page(cls, rows: QuerySet[Any], response: type[BaseSerializer[Any]], view: APIView) -> Response:
        """Return a page of the caller's rows, read as the tenant."""
        pages = cls()
        with as_tenant(caller_id(view.request)):
            page = response(pages.paginate_queryset(rows, view.request, view=view), many=True).data
        return pages.get_paginated_response(page)

    def get_schema_operation_parameters(self, view: APIView) -> list[dict[str, Any]]:
        size = {"type": "integer", "minimum": 1, "maximum": self.max_page_size, "default": self.page_size}
        cursor = {"type": "string", "maxLength": 2000}
        return [
            {"name": "cursor", "in": "query", "schema": cursor, "description": "From `next` or `previous`."},
            {"name": "page_size", "in": "query", "schema": size, "description": "An invalid value is ignored."},
        ]

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        link = {"type": ["string", "null"], "format": "uri"}
        return {
            "type": "object",
            "required": ["next", "previous", "results"],
            "properties": {"next": link, "previous": link, "results": schema | {"maxItems": self.max_page_size}},
        }

    def paginate_queryset(self, *args: Any, **kwargs: Any) -> list[Any] | None:
        try:
            return super().paginate_queryset(*args, **kwargs)
        except (ValidationError, ValueError, DataError) as error:  # the cursor's position is not a value of the column
            raise NotFound from error
