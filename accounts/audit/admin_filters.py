"""Admin filters that an index serves: an exact text, one of a few choices, a datetime range."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_naive, make_aware
from unfold.contrib.filters.admin import DropdownFilter, TextFilter
from unfold.widgets import UnfoldAdminTextInputWidget

Choices = Iterable[tuple[str, str]] | Callable[[], Iterable[tuple[str, str]]]


def query_parameters(shown: Any) -> tuple[str, ...]:
    """Return the names of the query parameters of a filter class."""
    names: tuple[str, ...] = getattr(shown, "parameters", ())
    return names or (str(shown.parameter_name),)


class ExactFilter(TextFilter):  # type: ignore[misc]
    """Selects rows by an exact text."""

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
    """Return a filter by a range of datetimes."""
    attributes = {"parameter_name": field, "parameters": (f"{field}_from", f"{field}_to"), "title": title}
    return type("DatetimeRangeFilter", (_DatetimeRangeFilter,), attributes)


def parse_utc_datetime(text: str) -> datetime | None:
    """Return the datetime, or the beginning of a day, in UTC unless ``text`` names a zone; None for an invalid text."""
    try:
        moment = parse_datetime(text.strip()) or parse_datetime(f"{text.strip()}T00:00")
        return make_aware(moment) if moment and is_naive(moment) else moment
    except (ValueError, OverflowError):
        return None
