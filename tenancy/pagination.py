"""Every list is paged by cursor: page two is as fast as page one, and rows that arrive meanwhile repeat nothing."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination


class Cursor(CursorPagination):
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200
    ordering = "-created_at"

    def paginate_queryset(self, *args: Any, **kwargs: Any) -> list[Any] | None:
        try:
            return super().paginate_queryset(*args, **kwargs)
        except (ValidationError, ValueError) as error:  # a cursor whose position is no value of the column
            raise NotFound from error
