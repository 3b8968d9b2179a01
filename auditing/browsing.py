"""How staff look at rows: read-only, and never counting a table that can reach millions."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from unfold.admin import ModelAdmin


class ReadOnlyAdmin(ModelAdmin):  # type: ignore[misc]
    """Rows to look at. What changes them is a service, behind a button of its own."""

    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
