"""Webhooks of the signed-in user: endpoints, secrets shown once, the latest deliveries, resend."""

from dataclasses import dataclass
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from accounts.common_error_codes import not_found
from accounts.errors import ApiError, Context, find_error_code
from accounts.rls import as_tenant
from outbox.models import EVENTS, Message, WebhookEndpoint
from outbox.webhooks import endpoints
from outbox.webhooks.endpoints import NewSecret
from outbox.webhooks.public_addresses import MAX_URL_CHARS
from portal.page_access import tenant_id, tenant_page
from portal.user_messages import error_message

MOST_DELIVERIES = 50  # on the page; the API lists all
STATES = {Message.State.QUEUED: _("Waits"), Message.State.DELIVERED: _("Received"), Message.State.FAILED: _("Failed")}


class EndpointForm(forms.Form):
    url = forms.CharField(
        label=_("Address"),
        max_length=MAX_URL_CHARS,
        widget=forms.URLInput,
        help_text=_("An https address of your server."),
    )
    events = forms.MultipleChoiceField(
        label=_("It hears of"),
        choices=[(event, event) for event in EVENTS],
        initial=EVENTS,
        widget=forms.CheckboxSelectMultiple,
    )


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery as the page shows it."""

    message: Message

    @property
    def label(self) -> str:
        return str(STATES[Message.State(self.message.state)])

    @property
    def problem(self) -> str:
        return failure_message(self.message.last_error)

    @property
    def status(self) -> int | None:
        return self.message.log[-1]["status"] if self.message.log else None


def failure_message(code: str | None) -> str:
    known = find_error_code(code, Context.OUTBOX_FAILURE)
    return str(known.tenant_message) if known else ""


@tenant_page("GET", "HEAD", "POST")
def webhooks(request: HttpRequest) -> HttpResponse:
    """List the endpoints; a POST creates one, whose secret this response alone shows."""
    form, created = EndpointForm(request.POST or None), None
    if form.is_valid():
        try:
            created = endpoints.create_endpoint(user_id=tenant_id(request), **form.cleaned_data)
        except ApiError as error:
            form.add_error(error.field, error_message(error))
        else:
            form = EndpointForm()
    with as_tenant(tenant_id(request)):
        rows = list(endpoints.tenant_endpoints(tenant_id(request)).order_by("-created_at", "id"))
    problems = {row.pk: failure_message(row.disabled_code) for row in rows}
    context = {"form": form, "created": created, "endpoints": [(row, problems[row.pk]) for row in rows]}
    return render(request, "portal/settings/webhooks.html", context)


@tenant_page("GET", "HEAD")
def webhook(request: HttpRequest, endpoint_id: UUID) -> HttpResponse:
    return _endpoint_page(request, endpoints.get_endpoint(tenant_id(request), endpoint_id))


@tenant_page("POST")
def rotate(request: HttpRequest, endpoint_id: UUID) -> HttpResponse:
    """Make a new secret, which this response alone shows."""
    renewed = endpoints.rotate_secret(endpoints.get_endpoint(tenant_id(request), endpoint_id))
    return _endpoint_page(request, renewed.endpoint, renewed)


def _endpoint_page(request: HttpRequest, endpoint: WebhookEndpoint, renewed: NewSecret | None = None) -> HttpResponse:
    with as_tenant(endpoint.user_id):
        rows = endpoints.tenant_deliveries(endpoint.user_id, endpoint.pk).order_by("-created_at", "id")
        deliveries = [Delivery(row) for row in rows[:MOST_DELIVERIES]]
    context = {
        "endpoint": endpoint,
        "problem": failure_message(endpoint.disabled_code),
        "renewed": renewed,
        "deliveries": deliveries,
    }
    return render(request, "portal/settings/webhook.html", context)


@tenant_page("POST")
def switch(request: HttpRequest, endpoint_id: UUID) -> HttpResponse:
    """Enable a disabled endpoint, or disable an enabled one, as the button said."""
    endpoint = endpoints.get_endpoint(tenant_id(request), endpoint_id)
    is_enabled = request.POST.get("enabled") == "yes"
    endpoints.update_endpoint(endpoint, enabled=is_enabled)
    messages.success(
        request, gettext("The webhook is on.") if is_enabled else gettext("The webhook is off: nothing is sent to it.")
    )
    return redirect("portal:webhook", endpoint_id)


@tenant_page("POST")
def delete(request: HttpRequest, endpoint_id: UUID) -> HttpResponse:
    endpoints.delete_endpoint(endpoints.get_endpoint(tenant_id(request), endpoint_id))
    messages.success(request, gettext("The webhook is deleted."))
    return redirect("portal:webhooks")


@tenant_page("POST")
def resend(request: HttpRequest, endpoint_id: UUID, delivery_id: UUID) -> HttpResponse:
    user_id = tenant_id(request)
    with as_tenant(user_id):
        message = endpoints.tenant_deliveries(user_id, endpoint_id).filter(pk=delivery_id).first()
    if message is None:
        raise not_found()
    try:
        endpoints.resend(message)
        messages.success(request, gettext("It is sent again in a moment."))
    except ApiError as error:
        messages.error(request, error_message(error))
    return redirect("portal:webhook", endpoint_id)
