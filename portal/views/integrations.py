"""A tenant's connected systems: connect one, watch it, fetch again, let go."""

from __future__ import annotations

from typing import cast
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse

from accounts.errors import ApiError, not_found
from accounts.models import User
from integrations import disconnect as disconnecting
from integrations.error_codes import CONSENT_REFUSED, STATE_MISMATCH
from integrations.models import ConnectedSource, IngestionJob, Provider
from integrations.oauth import services
from integrations.sync import sync_jobs
from portal import sources, user_messages
from portal.views.auth import only, page, tenant

EVERY = 3  # seconds between two looks while something is being fetched
CONSENTS = "consents"  # in the session: what was begun at a provider, by its state
MOST_CONSENTS = 5  # begun and not ended, in other tabs
LONGEST_ACCOUNT = 64


@page
def integrations(request: HttpRequest) -> HttpResponse:
    only(request, "GET", "HEAD")
    return render(request, "portal/settings/integrations.html", _shown(request))


@page
def listed(request: HttpRequest) -> HttpResponse:
    """Show the list alone, for a page that is open."""
    only(request, "GET", "HEAD")
    return render(request, "portal/settings/sources.html", _shown(request))


def _shown(request: HttpRequest) -> dict[str, object]:
    providers = sources.offered(tenant(request))
    is_moving = any(each.is_syncing for provider in providers for each in provider.connections)
    return {"providers": providers, "every": EVERY if is_moving else None}


@page
def connect(request: HttpRequest, provider: str) -> HttpResponse:
    """Lead to the provider, where the tenant consents. Recorded answers need no consent: a POST connects them.

    By GET, because browsers hold a form's whole way, redirects and all, to ``form-action``, which names no provider.
    """
    only(request, "GET", "POST")
    _known(provider)
    try:
        if request.method == "POST":
            return _connected(request, services.connect_fixtures(user_id=tenant(request), provider=provider))
        begun = services.start_consent(user_id=tenant(request), provider=provider, redirect_uri=_callback_url(provider))
    except ApiError as refused:
        return _refused(request, refused)
    consents = dict(list(request.session.get(CONSENTS, {}).items())[1 - MOST_CONSENTS :])
    request.session[CONSENTS] = consents | {begun.state: {"provider": provider, "verifier": begun.verifier}}
    return HttpResponseRedirect(begun.url)


@page
def callback(request: HttpRequest, provider: str) -> HttpResponse:
    """Take what the provider says of the consent. Nothing that it says is shown, stored or logged."""
    only(request, "GET")
    _known(provider)
    said, state = request.GET, request.GET.get("state", "")
    consents = request.session.get(CONSENTS, {})
    begun = consents.pop(state, {})
    request.session[CONSENTS] = consents
    try:
        if begun.get("provider") != provider:
            raise ApiError(STATE_MISMATCH, "This consent was not begun here, or has been used. Begin again.")
        if "code" not in said:
            raise ApiError(CONSENT_REFUSED, "The provider was not allowed to let us in.")
        source = services.complete_consent(
            user_id=tenant(request),
            provider=provider,
            code=said["code"],
            state=state,
            expected_state=state,
            verifier=begun["verifier"],
            redirect_uri=_callback_url(provider),
            account=said.get("realmId", "")[:LONGEST_ACCOUNT],
        )
    except ApiError as refused:
        return _refused(request, refused)
    return _connected(request, source)


@page
def sync(request: HttpRequest, source_id: UUID) -> HttpResponse:
    """Fetch now what has changed."""
    only(request, "POST")
    source = sources.one(tenant(request), source_id)
    try:
        sync_jobs.start_sync(source, IngestionJob.Kind.DELTA, by=str(tenant(request)))
    except ApiError as refused:
        return _refused(request, refused)
    return redirect("portal:integrations")


@page
def disconnect(request: HttpRequest, source_id: UUID) -> HttpResponse:
    """Ask first, on a page of its own."""
    only(request, "GET", "HEAD", "POST")
    source = sources.one(tenant(request), source_id)
    if request.method != "POST":
        is_shared = disconnecting.is_grant_shared(source, source.account)
        return render(request, "portal/settings/disconnect.html", {"source": source, "is_shared": is_shared})
    try:
        grant = disconnecting.disconnect_source(source, by=cast(User, request.user))
    except ApiError as refused:
        return _refused(request, refused)
    name = Provider(source.provider).label
    messages.success(request, f"{name} is disconnected. What it has brought is being removed.")
    if said := user_messages.GRANTS.get(grant):
        messages.warning(request, said.format(name=name))
    return redirect("portal:integrations")


def _known(provider: str) -> None:
    if provider not in Provider.values:
        raise not_found()


def _callback_url(provider: str) -> str:
    return f"{settings.PUBLIC_URL}{reverse('portal:connected', args=[provider])}"


def _connected(request: HttpRequest, source: ConnectedSource) -> HttpResponse:
    messages.success(request, f"{Provider(source.provider).label} is connected. Its records are being fetched.")
    return redirect("portal:integrations")


def _refused(request: HttpRequest, refused: ApiError) -> HttpResponse:
    messages.error(request, user_messages.error_message(refused))
    return redirect("portal:integrations")
