"""Campaign admin: the start form with its price, progress, and the actions on a campaign."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import Count
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html_join
from unfold import widgets

from accounts.admin_base import BoundedAdmin, choice_filter, reason_field
from accounts.audit import log
from accounts.errors import ApiError
from embeddings.chunking import chunkers
from embeddings.embedders import registry
from embeddings.reindexing import campaign_scope, cost_estimates, services
from embeddings.reindexing.models import Campaign, CampaignTenant
from vendors import tenant_argument

SHOWN = 50  # tenants on a campaign's page, those with a reason first

# Label, service and the campaign states in which the button is shown.
BUTTONS: Mapping[str, tuple[str, Callable[..., Any], frozenset[str]]] = {
    "pause": ("Pause", services.pause, frozenset({"running"})),
    "resume": ("Resume", services.resume, frozenset({"paused"})),
    "cancel": ("Cancel", services.cancel, frozenset({"running", "paused"})),
    "roll-back": ("Roll back", services.roll_back, frozenset({"running", "paused", "cancelled"})),
    "settle": ("Remove the old vectors now", services.settle_now, frozenset({"running", "paused", "cancelled"})),
}
NEEDS_LIVE_TENANT = {"roll-back", "settle"}


def target_choices() -> list[tuple[str, str]]:
    models = {f"{each.model}@{each.version}" for each in registry.configured_embedders()}
    return [
        *((f"reembed {label}", f"model {label}") for label in sorted(models)),
        *((f"rechunk {label}", f"chunker {label}") for label in sorted(chunkers.all_chunkers())),
        ("reparse", f"parser {campaign_scope.validate_target(kind='reparse').label}"),
    ]


class StartForm(forms.Form):
    target = forms.ChoiceField(choices=target_choices, widget=widgets.UnfoldAdminSelectWidget)
    tenants = forms.CharField(
        required=False,
        widget=widgets.UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text="Their ids, or laws for the statutes; empty: all tenants that are not pinned, without the statutes.",
    )
    budget_cents = forms.DecimalField(
        required=False,
        min_value=0,
        max_value=cost_estimates.MAX_CENTS,
        widget=widgets.UnfoldAdminDecimalFieldWidget,
        help_text="Where the campaign pauses; empty: no limit.",
    )
    keep_hours = forms.FloatField(
        initial=24,
        min_value=0,
        widget=widgets.UnfoldAdminTextInputWidget,
        help_text="How long a cut-over can be rolled back.",
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
        """The arguments of `cost_estimates.estimate`."""
        kind, _, label = self.cleaned_data["target"].partition(" ")
        model, _, version = label.rpartition("@")
        targets = {"rechunk": {"chunker": label}, "reembed": {"model": model, "version": version}}
        return {"kind": kind, "user_ids": self.cleaned_data["tenants"], **targets.get(kind, {})}

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


@admin.register(Campaign)
class CampaignAdmin(BoundedAdmin):
    list_display = ("kind", "target", "state", "reason", "tenants_by_state", "budget_cents", "created_at", "created_by")
    list_filter = (
        choice_filter("state", "state", Campaign.State.choices), choice_filter("kind", "kind", Campaign.Kind.choices),
    )  # fmt: skip
    id_fields = ("campaign_id",)
    # Not the canaries: they are tenants' queries.
    fields = (
        ("kind", "target"), ("state", "reason"), ("budget_cents", "tolerance", "keep_seconds"),
        ("created_by", "created_at", "finished_at"),
    )  # fmt: skip
    readonly_fields = ("target",)
    ordering = ("-created_at", "campaign_id")
    change_form_template = "admin/reindexing/campaign/change_form.html"

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.move_view)
        return [path("<uuid:campaign_id>/move/", view, name="reindexing_campaign_move"), *super().get_urls()]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.display(description="to")
    def target(self, campaign: Campaign) -> str:
        return campaign.target

    @admin.display(description="tenants")
    def tenants_by_state(self, campaign: Campaign) -> str:
        counts = campaign.tenants.values_list("state").annotate(Count("pk")).order_by("state")
        return format_html_join(", ", "{} {}", ((number, state) for state, number in counts))

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Show the price first: a campaign starts only from a page that shows its price."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = StartForm(request.POST or None)
        estimate = None
        if form.is_valid():
            try:
                if "start" in request.POST:
                    campaign = self._start(request, form)
                    messages.success(request, "The campaign has begun.")
                    return HttpResponseRedirect(reverse("admin:reindexing_campaign_change", args=[campaign.pk]))
                estimate = cost_estimates.estimate(**form.target_options)
            except ApiError as error:
                form.add_error(None, f"{error.code}: {error.detail}")
        context = {**self.admin_site.each_context(request), "title": "New campaign", "opts": self.opts}
        return TemplateResponse(
            request, "admin/reindexing/campaign/start.html", {**context, "form": form, "estimate": estimate}
        )

    def _start(self, request: HttpRequest, form: StartForm) -> Campaign:
        reason = log.clean_reason(form.cleaned_data["reason"])
        with transaction.atomic():
            campaign = services.start(**form.target_options, **form.limits, by=str(request.user.pk))
            self._write(request, campaign, "start", reason, target=campaign.target)
        return campaign

    def _write(self, request: HttpRequest, campaign: Campaign, verb: str, reason: str, **details: Any) -> None:
        log.record_action(
            by=request.user, action=f"campaigns.{verb}", reason=reason,  # type: ignore[arg-type]
            object_type="campaign", object_id=campaign.pk, **details,
        )  # fmt: skip

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        campaign = self.get_object(request, object_id)
        context: dict[str, Any] = {}
        if campaign is not None:
            tenants = campaign.tenants.order_by("-reason", "state", "user_id")
            may = self._may_move(request)
            context = {
                "buttons": list(self._buttons(campaign)) if may else [],
                "why": MoveForm(),
                "progress": services.campaign_progress(campaign),
                "counted": tenants.order_by().values_list("state").annotate(Count("pk")).order_by("state"),
                "tenants": [*tenants.filter(reason__isnull=False)[:SHOWN], *tenants.filter(reason=None)[:SHOWN]],
                "held": CampaignTenant.State.HELD if may else None,
            }
        response: HttpResponse = super().change_view(request, object_id, form_url, {**context, **(extra_context or {})})
        return response

    def _buttons(self, campaign: Campaign) -> Iterator[tuple[str, str]]:
        is_live = campaign.tenants.filter(state=CampaignTenant.State.LIVE).exists()
        for name, (label, _, states) in BUTTONS.items():
            if campaign.state in states and (is_live or name not in NEEDS_LIVE_TENANT):
                yield name, label

    def _may_move(self, request: HttpRequest) -> bool:
        return request.user.has_perm("reindexing.change_campaign")

    def move_view(self, request: HttpRequest, campaign_id: Any) -> HttpResponse:
        """Run the action of a button. POST only: a link in a message must not cancel a campaign."""
        if request.method != "POST" or not self._may_move(request):
            raise PermissionDenied
        campaign = Campaign.objects.filter(pk=campaign_id).first()
        if campaign is None:
            raise PermissionDenied
        try:
            self._move(request, campaign, request.POST.get("move", ""), request.POST.get("tenant"))
        except ApiError as error:
            messages.error(request, f"{error.code}: {error.detail}")
        else:
            messages.success(request, "Done: the workers go on from here.")
        return HttpResponseRedirect(reverse("admin:reindexing_campaign_change", args=[campaign_id]))

    def _move(self, request: HttpRequest, campaign: Campaign, name: str, tenant: str | None) -> None:
        by, reason = str(request.user.pk), log.clean_reason(request.POST.get("reason", ""))
        with transaction.atomic():
            if name == "accept" and tenant:
                accepted = services.accept(campaign, tenant, by=by)
                self._write(request, campaign, name, reason, tenant_id=accepted.user_id)
            elif name in BUTTONS:
                BUTTONS[name][1](campaign, by=by)
                self._write(request, campaign, name.replace("-", "_"), reason)
            else:
                raise PermissionDenied
