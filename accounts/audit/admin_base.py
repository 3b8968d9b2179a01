"""Base classes of the admin: lists in index order with bounded counts and time, search by whole ids, read-only rows."""

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.contrib.admin import AdminSite, ShowFacets
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db import OperationalError, connection, transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.functional import cached_property
from django.utils.html import format_html
from psycopg.errors import QueryCanceled
from unfold.admin import ModelAdmin
from unfold.views import ChangeList

from accounts.audit.admin_filters import query_parameters

MAX_ROWS = 1_000
STATEMENT_TIMEOUT_MS = 3_000


def nowrap(text: object) -> str:
    """Return text that people copy whole in one line."""
    return format_html('<span class="whitespace-nowrap">{}</span>', text)


def column(description: str, show: Callable[[Any], object]) -> Any:
    """Return a column of a list: ``show(row)`` under the heading ``description``."""

    @admin.display(description=description)
    def display(self: ModelAdmin, row: Any) -> object:
        return show(row)

    return display


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts and shows at most ``MAX_ROWS``: a deep OFFSET reads all rows that it skips."""

    template_name = "admin/audit/pages.html"

    @cached_property
    def bounded_count(self) -> int:
        rows: QuerySet[Model] = self.object_list  # type: ignore[assignment]
        return rows.order_by()[: MAX_ROWS + 1].count()

    @cached_property
    def count(self) -> int:
        return min(self.bounded_count, MAX_ROWS)

    @property
    def has_more_rows(self) -> bool:
        return self.bounded_count > MAX_ROWS

    def validate_number(self, number: Any) -> int:
        return max(1, min(int(number), self.num_pages))


class IndexedChangeList(ChangeList):  # type: ignore[misc]
    """A list in its admin's order only: any other order would sort the whole table."""

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Model]) -> list[str]:
        return list(self.model_admin.get_ordering(request)) or ["pk"]

    page_num: int
    result_count: int

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.page_num = self.paginator.validate_number(self.page_num)
        self.full_result_count = self.result_count  # unknown


class BoundedAdmin(ModelAdmin):  # type: ignore[misc]
    """Lists that stay fast for any number of rows. An index must serve ``ordering`` and each filter."""

    paginator: Any = BoundedPaginator
    show_full_result_count = False
    show_facets = ShowFacets.NEVER  # facets count each choice of each filter
    list_per_page = 50
    list_max_show_all = 0
    list_filter_submit = True
    sortable_by: Any = ()
    search_help_text: Any = None
    # The search box takes a whole id: the first of these columns that has it. Each is the first column of an index.
    id_fields: tuple[str, ...] = ()
    statement_timeout_ms = STATEMENT_TIMEOUT_MS

    def __init__(self, model: type[Model], admin_site: AdminSite) -> None:
        super().__init__(model, admin_site)
        words = ", ".join(name.replace("_", " ") for name in self.id_fields)
        self.search_help_text = self.search_help_text or f"A whole id: {words}"

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return IndexedChangeList

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        return self.id_fields

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        for name in self.id_fields:
            try:
                rows = queryset.filter(**{name: term})
            except (ValidationError, ValueError):
                continue
            if rows.exists():
                return rows, False
        return queryset.none(), False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Allow only the filters' own parameters.

        ``?text__startswith=`` or ``?user_id__password__startswith=`` would reveal letter by letter what no list shows.
        """
        return lookup in {name for shown in self.get_list_filter(request) for name in query_parameters(shown)}

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if request.method != "GET":  # an action: its services have transactions of their own
            return self._list(request, extra_context)
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SELECT set_config('statement_timeout', %s, true)", [f"{self.statement_timeout_ms}ms"])
                return self._list(request, extra_context)
        except OperationalError as error:
            if not isinstance(error.__cause__, QueryCanceled):
                raise
        context = {**self.admin_site.each_context(request), "title": "Too many rows", "opts": self.opts}
        return TemplateResponse(request, "admin/audit/too_slow.html", context, status=503)

    def _list(self, request: HttpRequest, extra_context: dict[str, Any] | None) -> HttpResponse:
        response: HttpResponse = super().changelist_view(request, extra_context)
        return response.render() if isinstance(response, TemplateResponse) else response  # within the timeout


class ReadOnlyAdmin(BoundedAdmin):
    """Rows that staff cannot edit. Actions call services."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
