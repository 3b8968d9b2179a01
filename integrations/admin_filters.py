"""What staff ask of the list of syncs, along its index by time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest

from accounts.audit.admin_filters import ChoiceFilter


class CreatedWithin(ChoiceFilter):
    """Syncs are by the million after some years: without an id to look for, only the last ones are looked through."""

    title, parameter_name = "within", "within"
    filter_choices = (("86400", "a day"), ("2592000", "30 days"))
    all_option = ("", "a week")
    default = 604_800

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if request.GET.get("q"):
            return queryset  # its own index serves
        value = self.value()
        seconds = int(value) if value in dict(self.filter_choices) else self.default
        return queryset.filter(created_at__gte=Now() - timedelta(seconds=seconds))
