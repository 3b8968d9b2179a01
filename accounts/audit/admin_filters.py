"""Filters that an index answers: one whole value, one of a few, or a span of time."""

from __future__ import annotations

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
    """Return the names in an address that a filter's class takes, whole."""
    several: tuple[str, ...] = getattr(shown, "parameters", ())
    return several or (str(shown.parameter_name),)


class ExactFilter(TextFilter):  # type: ignore[misc]
    """Rows with a whole value, as it is typed."""

    also: Mapping[str, Any] = {}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = (self.value() or "").strip()
        if not value:
            return queryset
        try:
            return queryset.none() if "\0" in value else self.filter_rows(queryset, value)
        except (ValidationError, ValueError):  # no such id can be
            return queryset.none()

    def filter_rows(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(**{self.parameter_name: value}, **self.also)


def exact_filter(field: str, title: str, **also: Any) -> type[ExactFilter]:
    """Return a filter by a whole value. ``also``: what a partial index wants said."""
    return type("ExactFilter", (ExactFilter,), {"parameter_name": field, "title": title, "also": also})


class ChoiceFilter(DropdownFilter):  # type: ignore[misc]
    """Rows with one of a few values; what is none of them narrows to nothing."""

    filter_choices: Choices

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        offered = self.filter_choices
        return list(offered() if callable(offered) else offered)

    def has_output(self) -> bool:
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if not value:
            return queryset
        return self.filter_rows(queryset, value) if value in dict(self.lookup_choices) else queryset.none()

    def filter_rows(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return rows.filter(**{self.parameter_name: value})


def choice_filter(field: str, title: str, choices: Choices) -> type[ChoiceFilter]:
    """Return a filter by one of a few values; ``choices`` may be a function, which is asked at each look."""
    offered = staticmethod(choices) if callable(choices) else tuple(choices)
    return type("ChoiceFilter", (ChoiceFilter,), {"parameter_name": field, "title": title, "filter_choices": offered})


class _Moments(forms.Form):
    def __init__(self, field: str, title: str, said: Mapping[str, str]) -> None:
        super().__init__(said)
        for name, word in ((f"{field}_from", "from"), (f"{field}_to", "until")):
            widget = UnfoldAdminTextInputWidget(attrs={"type": "datetime-local"})
            self.fields[name] = forms.CharField(label=f"{title}, {word} (UTC)", required=False, widget=widget)


class _DatetimeRangeFilter(admin.ListFilter):
    template = "unfold/filters/filters_field.html"
    parameter_name = ""
    parameters: tuple[str, ...] = ()

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: type[Model], model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        for name in self.expected_parameters():
            if name in params:
                self.used_parameters[name] = params.pop(name)[-1]

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return [*self.parameters]

    def _said(self, name: str | None) -> str:
        return str(self.used_parameters.get(str(name), ""))

    def choices(self, changelist: Any) -> Iterator[Any]:
        said = {str(name): self._said(name) for name in self.expected_parameters()}
        yield {"form": _Moments(self.parameter_name, str(self.title), said)}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        begin, end = (parse_utc_datetime(self._said(name)) for name in self.expected_parameters())
        found = queryset.filter(**{f"{self.parameter_name}__gte": begin}) if begin else queryset
        return found.filter(**{f"{self.parameter_name}__lt": end}) if end else found


def datetime_range_filter(field: str, title: str) -> type[_DatetimeRangeFilter]:
    """Return a filter by a span of time."""
    named = {"parameter_name": field, "parameters": (f"{field}_from", f"{field}_to")}
    return type("DatetimeRangeFilter", (_DatetimeRangeFilter,), {**named, "title": title})


def parse_utc_datetime(said: str) -> datetime | None:
    """Return the moment that is meant, in UTC where no zone is said; None for what is none."""
    try:
        found = parse_datetime(said.strip()) or parse_datetime(f"{said.strip()}T00:00")
        return make_aware(found) if found and is_naive(found) else found
    except (ValueError, OverflowError):
        return None
