"""Connected systems: connect, watch, sync and disconnect a source."""

from typing import cast
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext

from accounts.common_error_codes import not_found
from accounts.errors import ApiError
from accounts.models import User
from integrations.disconnect import disconnect_source, is_grant_shared
from integrations.error_codes import CONSENT_REFUSED, STATE_MISMATCH
from integrations.models import ConnectedSource, IngestionJob, Provider
from integrations.oauth import authorization_flow
from integrations.sync.lifecycle import start_sync
from portal.connected_sources import get_source, list_providers
from portal.page_access import require_own_page, tenant_id, tenant_page
from portal.user_messages import GRANTS, error_message

POLL_SECONDS = 3  # while a sync is running
CONSENTS = "consents"  # session key: pending consents by their state
MAX_CONSENTS = 5  # pending ones, in other tabs
MAX_ACCOUNT_CHARS = 64


@tenant_page("GET", "HEAD")
def integrations(request: HttpRequest) -> HttpResponse:
    return render(request, "portal/settings/integrations.html", _list_context(request))


@tenant_page("GET", "HEAD")
def source_list(request: HttpRequest) -> HttpResponse:
    return render(request, "portal/settings/sources.html", _list_context(request))


def _list_context(request: HttpRequest) -> dict[str, object]:
    providers = list_providers(tenant_id(request))
    is_syncing = any(connection.is_syncing for provider in providers for connection in provider.connections)
    return {"providers": providers, "every": POLL_SECONDS if is_syncing else None}


@tenant_page("GET", "POST")
def connect(request: HttpRequest, provider: str) -> HttpResponse:
    """Redirect to the provider for the tenant's consent. A POST connects fixtures, which need no consent.

    The redirect answers a GET, because browsers apply ``form-action``, which names no provider, to a form's redirects.
    """
    _require_known(provider)
    require_own_page(request)  # another site may have signed the browser in at the provider as somebody else
    user_id, callback_url = tenant_id(request), _callback_url(provider)
    try:
        if request.method == "POST":
            return _connected(request, authorization_flow.connect_fixtures(user_id=user_id, provider=provider))
        consent = authorization_flow.start_consent(user_id=user_id, provider=provider, redirect_uri=callback_url)
    except ApiError as error:
        return _failed(request, error)
    pending = dict(list(request.session.get(CONSENTS, {}).items())[1 - MAX_CONSENTS :])
    request.session[CONSENTS] = pending | {consent.state: {"provider": provider, "verifier": consent.verifier}}
    return HttpResponseRedirect(consent.url)


@tenant_page("GET")
def callback(request: HttpRequest, provider: str) -> HttpResponse:
    """Complete a consent. Nothing from the provider's query is shown, stored or logged."""
    _require_known(provider)
    params, state = request.GET, request.GET.get("state", "")
    pending = request.session.get(CONSENTS, {})
    consent = pending.pop(state, {})
    request.session[CONSENTS] = pending
    try:
        if consent.get("provider") != provider:
            raise ApiError(STATE_MISMATCH)
        if "code" not in params:
            raise ApiError(CONSENT_REFUSED)
        source = authorization_flow.complete_consent(
            user_id=tenant_id(request),
            provider=provider,
            code=params["code"],
            state=state,
            expected_state=state,
            verifier=consent["verifier"],
            redirect_uri=_callback_url(provider),
            account=params.get("realmId", "")[:MAX_ACCOUNT_CHARS],
        )
    except ApiError as error:
        return _failed(request, error)
    return _connected(request, source)


@tenant_page("POST")
def sync(request: HttpRequest, source_id: UUID) -> HttpResponse:
    source = get_source(tenant_id(request), source_id)
    try:
        start_sync(source, IngestionJob.Kind.DELTA, by=str(tenant_id(request)))
    except ApiError as error:
        return _failed(request, error)
    return redirect("portal:integrations")


@tenant_page("GET", "HEAD", "POST")
def disconnect(request: HttpRequest, source_id: UUID) -> HttpResponse:
    """Ask for confirmation on a page of its own, then disconnect."""
    source = get_source(tenant_id(request), source_id)
    if request.method != "POST":
        context = {"source": source, "is_shared": is_grant_shared(source, source.account)}
        return render(request, "portal/settings/disconnect.html", context)
    try:
        outcome = disconnect_source(source, by=cast(User, request.user))
    except ApiError as error:
        return _failed(request, error)
    name = Provider(source.provider).label
    messages.success(request, gettext("%s is disconnected. What it has brought is being removed.") % name)
    if outcome in GRANTS:
        messages.warning(request, GRANTS[outcome].format(name=name))
    return redirect("portal:integrations")


def _require_known(provider: str) -> None:
    if provider not in Provider.values:
        raise not_found()


def _callback_url(provider: str) -> str:
    return f"{settings.PUBLIC_URL}{reverse('portal:connected', args=[provider])}"


def _connected(request: HttpRequest, source: ConnectedSource) -> HttpResponse:
    name = Provider(source.provider).label
    messages.success(request, gettext("%s is connected. Its records are being fetched.") % name)
    return redirect("portal:integrations")


def _failed(request: HttpRequest, error: ApiError) -> HttpResponse:
    messages.error(request, error_message(error))
    return redirect("portal:integrations")
