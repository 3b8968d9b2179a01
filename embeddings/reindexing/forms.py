"""Forms of the campaign admin: start a campaign, confirm an action."""

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

from accounts.audit.admin_base import reason_field
from embeddings import chunking, embedders
from embeddings.reindexing.target_models import MAX_CENTS
from vendors import tenant_argument


def target_choices() -> list[tuple[str, str]]:
    """Return all configured models and chunkers."""
    models = {f"{each.model}@{each.version}" for each in embedders.configured_embedders()}
    return [
        *((f"reembed {label}", f"model {label}") for label in sorted(models)),
        *((f"rechunk {label}", f"chunker {label}") for label in sorted(chunking.all_chunkers())),
    ]


class StartForm(forms.Form):
    target = forms.ChoiceField(choices=target_choices, widget=UnfoldAdminSelectWidget)
    tenants = forms.CharField(
        required=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text="Their ids, or laws; empty: all who are not pinned, but not the laws.",
    )
    budget_cents = forms.DecimalField(
        required=False,
        min_value=0,
        max_value=MAX_CENTS,
        widget=UnfoldAdminDecimalFieldWidget,
        help_text="Where the campaign pauses; empty: no limit.",
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
    def target_options(self) -> dict[str, Any]:
        """The arguments of `services.estimate`."""
        kind, _, label = self.cleaned_data["target"].partition(" ")
        model, _, version = label.rpartition("@")
        target = {"chunker": label} if kind == "rechunk" else {"model": model, "version": version}
        return {"kind": kind, "user_ids": self.cleaned_data["tenants"], **target}

    @property
    def limits(self) -> dict[str, Any]:
        return {
            "budget_cents": self.cleaned_data["budget_cents"],
            "keep_seconds": self.cleaned_data["keep_hours"] * 3600,
        }


class MoveForm(forms.Form):
    """Reason of an action. No ids: a page has several such forms."""

    reason = reason_field()

    def __init__(self) -> None:
        super().__init__(auto_id=False)
