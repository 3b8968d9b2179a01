"""Base of the admin: lists in index order with bounded counts and time, filters that an index serves, reason forms."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin import AdminSite, ShowFacets
from django.contrib.admin.utils import flatten_fieldsets
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db import OperationalError, connection, transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.dateparse import parse_datetime
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.timezone import is_naive, make_aware
from psycopg.errors import QueryCanceled
from unfold.admin import ModelAdmin
from unfold.contrib.filters.admin import DropdownFilter, TextFilter
from unfold.forms import AuthenticationForm
from unfold.views import ChangeList
from unfold.widgets import UnfoldAdminTextInputWidget

from accounts.admin_cells import cell_of, is_shown_by_cell, join_names
from accounts.audit.log import MAX_REASON_CHARS

Choices = Iterable[tuple[str, str]] | Callable[[], Iterable[tuple[str, str]]]

MAX_ROWS = 1_000
SHOWN, SHOWN_IN_LINK = "_shown", "_shown_in_link"
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
    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.page_num = self.paginator.validate_number(self.page_num)
        self.full_result_count = self.result_count  # unknown
        join_names(request.user, self.result_list)


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
        # Columns by the names that `get_list_display` and `get_fieldsets` put in the place of the fields'.
        for field in filter(is_shown_by_cell, model._meta.fields):
            setattr(self, f"{field.attname}{SHOWN}", cell_of(field))
            setattr(self, f"{field.attname}{SHOWN_IN_LINK}", cell_of(field, linked=False))

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """Show names, times, ids and money as people read them; the first column is within a link already."""
        first = SHOWN if self.list_display_links is None else SHOWN_IN_LINK
        names = list(super().get_list_display(request))
        return [self._shown(name, SHOWN if at else first) for at, name in enumerate(names)]

    def _shown(self, name: Any, suffix: str) -> Any:
        return f"{name}{suffix}" if isinstance(name, str) and hasattr(self, f"{name}{suffix}") else name

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            join_names(request.user, [row])
        return row

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

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        shown = flatten_fieldsets(self.get_fieldsets(request, obj))
        return (*super().get_readonly_fields(request, obj), *(name for name in shown if name.endswith(SHOWN)))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        def show(fields: Any) -> Any:
            return [show(name) if isinstance(name, list | tuple) else self._shown(name, SHOWN) for name in fields]

        sets = super().get_fieldsets(request, obj) if self.fields or self.fieldsets else self._all_fields()
        return [(title, {**options, "fields": show(options["fields"])}) for title, options in sets]

    def _all_fields(self) -> Any:
        return [(None, {"fields": [field.attname for field in self.opts.fields]})]


def query_parameters(shown: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = getattr(shown, "parameters", ())
    return names or (str(shown.parameter_name),)


class ExactFilter(TextFilter):  # type: ignore[misc]
    also: Mapping[str, Any] = {}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        text = (self.value() or "").strip()
        if not text:
            return queryset
        try:
            return queryset.none() if "\0" in text else self.filter_rows(queryset, text)
        except (ValidationError, ValueError):  # no valid id
            return queryset.none()

    def filter_rows(self, rows: QuerySet[Any], text: str) -> QuerySet[Any]:
        return rows.filter(**{self.parameter_name: text}, **self.also)


def exact_filter(field: str, title: str, **also: Any) -> type[ExactFilter]:
    """Return a filter by an exact text. ``also`` are the conditions of a partial index."""
    return type("ExactFilter", (ExactFilter,), {"parameter_name": field, "title": title, "also": also})


class ChoiceFilter(DropdownFilter):  # type: ignore[misc]
    """Selects rows by one of a few choices; an unknown choice selects none."""

    filter_choices: Choices

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        choices = self.filter_choices
        return list(choices() if callable(choices) else choices)

    def has_output(self) -> bool:
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        choice = self.value()
        if not choice:
            return queryset
        return self.filter_rows(queryset, choice) if choice in dict(self.lookup_choices) else queryset.none()

    def filter_rows(self, rows: QuerySet[Any], choice: str) -> QuerySet[Any]:
        return rows.filter(**{self.parameter_name: choice})


def choice_filter(field: str, title: str, choices: Choices) -> type[ChoiceFilter]:
    """Return a filter by one of a few choices; ``choices`` may be a function, which is called for each list."""
    filter_choices = staticmethod(choices) if callable(choices) else tuple(choices)
    return type(
        "ChoiceFilter", (ChoiceFilter,), {"parameter_name": field, "title": title, "filter_choices": filter_choices}
    )


class _DatetimeRangeForm(forms.Form):
    def __init__(self, field: str, title: str, texts: Mapping[str, str]) -> None:
        super().__init__(texts)
        for name, word in ((f"{field}_from", "from"), (f"{field}_to", "until")):
            widget = UnfoldAdminTextInputWidget(attrs={"type": "datetime-local"})
            self.fields[name] = forms.CharField(label=f"{title}, {word} (UTC)", required=False, widget=widget)


class _DatetimeRangeFilter(admin.ListFilter):
    template = "unfold/filters/filters_field.html"
    parameter_name = ""
    parameters: tuple[str, ...] = ()

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: type[Model], model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        self.texts = {name: str(params.pop(name)[-1]) if name in params else "" for name in self.parameters}
        self.used_parameters.update({name: text for name, text in self.texts.items() if text})

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return [*self.parameters]

    def choices(self, changelist: Any) -> Iterator[Any]:
        yield {"form": _DatetimeRangeForm(self.parameter_name, str(self.title), self.texts)}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        begin, end = (parse_utc_datetime(text) for text in self.texts.values())
        rows = queryset.filter(**{f"{self.parameter_name}__gte": begin}) if begin else queryset
        return rows.filter(**{f"{self.parameter_name}__lt": end}) if end else rows


def datetime_range_filter(field: str, title: str) -> type[_DatetimeRangeFilter]:
    attributes = {"parameter_name": field, "parameters": (f"{field}_from", f"{field}_to"), "title": title}
    return type("DatetimeRangeFilter", (_DatetimeRangeFilter,), attributes)


def parse_utc_datetime(text: str) -> datetime | None:
    """Return the datetime, or the beginning of a day, in UTC unless ``text`` names a zone; None for an invalid text."""
    try:
        moment = parse_datetime(text.strip()) or parse_datetime(f"{text.strip()}T00:00")
        return make_aware(moment) if moment and is_naive(moment) else moment
    except (ValueError, OverflowError):
        return None


class StaffLoginForm(AuthenticationForm):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].label = "E-mail"
        self.fields["username"].widget.input_type = "email"


def reason_field(**options: Any) -> forms.CharField:
    return forms.CharField(
        max_length=MAX_REASON_CHARS,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        help_text="Kept in the audit log with your name. No names or texts of tenants, please: ids and ticket numbers.",
        **options,
    )


class ReasonForm(forms.Form):
    reason = reason_field()


def reason_page(
    request: HttpRequest,
    site: AdminSite,
    form: forms.Form,
    *,
    title: str,
    button: str,
    back: str,
    lines: tuple[str, ...] = (),
    template: str = "admin/audit/reason.html",
    **context: Any,
) -> TemplateResponse:
    """Return the page of a form with one button; it is not cached."""
    page = {"title": title, "form": form, "button": button, "back": back, "lines": lines}
    response = TemplateResponse(request, template, {**site.each_context(request), **page, **context})
    response.headers["Cache-Control"] = "no-store"
    return response
