"""Every list is paged by cursor: page two is as fast as page one, and rows that arrive meanwhile repeat nothing."""

from __future__ import annotations

from rest_framework.pagination import CursorPagination


class Cursor(CursorPagination):
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200
    ordering = "-created_at"
