"""What staff fill in to start a campaign."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import (
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from accounts.audit.forms import reason_field
from embeddings import chunking, embedders
from embeddings.reindexing.targets import MOST_CENTS
from vendors import tenant_argument


def targets() -> list[tuple[str, str]]:
    """What a campaign can move to here: every model and every chunker."""
    models = {f"{made.model}@{made.version}" for made in embedders.configured_embedders()}
    return [
        *((f"reembed {label}", f"model {label}") for label in sorted(models)),
        *((f"rechunk {label}", f"chunker {label}") for label in sorted(chunking.all_chunkers())),
    ]


class StartForm(forms.Form):
    target = forms.ChoiceField(choices=targets, widget=UnfoldAdminSelectWidget)
    tenants = forms.CharField(
        required=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text="Their ids, or laws; empty: all who are not pinned, but not the laws.",
    )
    budget_cents = forms.DecimalField(
        required=False,
        min_value=0,
        max_value=MOST_CENTS,
        widget=UnfoldAdminDecimalFieldWidget,
        help_text="Where the campaign stops and waits for you; empty: no limit.",
    )
    keep_hours = forms.FloatField(
        initial=24, min_value=0, widget=UnfoldAdminTextInputWidget, help_text="How long a cut-over can be rolled back."
    )
    reason = reason_field(required=False)  # the price is shown without one

    def clean_tenants(self) -> list[UUID] | None:
        try:
            return [
                tenant_argument.parse_tenant_id(each) for each in self.cleaned_data["tenants"].replace(",", " ").split()
            ] or None
        except ValueError as error:
            raise ValidationError("One of these is not the id of a tenant.") from error

    @property
    def wanted(self) -> dict[str, Any]:
        """What `services.estimate` takes."""
        kind, _, label = self.cleaned_data["target"].partition(" ")
        model, _, version = label.rpartition("@")
        what = {"chunker": label} if kind == "rechunk" else {"model": model, "version": version}
        return {"kind": kind, "user_ids": self.cleaned_data["tenants"], **what}

    @property
    def limits(self) -> dict[str, Any]:
        return {
            "budget_cents": self.cleaned_data["budget_cents"],
            "keep_seconds": self.cleaned_data["keep_hours"] * 3600,
        }


class MoveForm(forms.Form):
    """Goes with every button. No ids: a page has several."""

    reason = reason_field()

    def __init__(self) -> None:
        super().__init__(auto_id=False)
