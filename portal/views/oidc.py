"""Sign-in by an OpenID Connect provider, and its connection to an account."""

import hashlib
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache

from accounts import oidc, rate_limit, sessions
from accounts.errors import ApiError
from accounts.models import User, UserIdentity
from accounts.sign_in import client_address, client_network, record_sign_in
from outbox.mails import account_mails
from portal.error_pages import error_page
from portal.page_access import redirect_after_sign_in, require_own_page, signed_in_user, tenant_page


@never_cache
def sign_in(request: HttpRequest) -> HttpResponse:
    return _start(request, next_page=request.GET.get("next", ""), connect=None)


@tenant_page("GET")
def connect(request: HttpRequest) -> HttpResponse:
    """Send the signed-in user to the provider. A GET, because ``form-action`` names no provider.

    From our own page only: another site may have signed the browser in at the provider as somebody else.
    """
    require_own_page(request)
    return _start(request, next_page=reverse("portal:account"), connect=signed_in_user(request).pk)


def _start(request: HttpRequest, *, next_page: str, connect: UUID | None) -> HttpResponse:
    if not oidc.is_configured():
        raise Http404
    try:
        client = client_network(client_address(request))
        rate_limit.check_rate(rate_limit.OIDC_STARTS, hashlib.sha256(client.encode()).hexdigest())
        url = oidc.start(request.session, redirect_uri=_redirect_uri(), next_page=next_page, connect=connect)
    except ApiError as error:
        return error_page(error, request)
    return HttpResponseRedirect(url)


@never_cache
def callback(request: HttpRequest) -> HttpResponse:
    """Complete a sign-in or a connection. Nothing from the provider's query is shown, stored or logged."""
    if not oidc.is_configured():
        raise Http404
    try:
        signed_in = oidc.complete(request.session, request.GET.dict(), redirect_uri=_redirect_uri())
        if signed_in.connect:
            return _connected(request, signed_in)
        user = oidc.find_or_create_user(signed_in)
    except ApiError as error:
        return error_page(error, request)
    record_sign_in("users.sign_in", user, request, by=user)
    sessions.record_sign_in(request)
    login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
    return redirect_after_sign_in(request, signed_in.next_page)


def _connected(request: HttpRequest, found: oidc.SignedIn) -> HttpResponse:
    user = request.user
    if not isinstance(user, User) or user.pk != found.connect:
        raise ApiError(oidc.OIDC_EXPIRED)
    with transaction.atomic():
        oidc.connect_identity(user, found)
        account_mails.enqueue_mail(user.pk, account_mails.OIDC_CONNECTED)
    messages.success(request, gettext("You can sign in with %s from now on.") % settings.OIDC_NAME)
    return redirect("portal:account")


@tenant_page("POST")
def disconnect(request: HttpRequest) -> HttpResponse:
    """Disconnect the identities of a user who has a password to sign in with."""
    user = signed_in_user(request)
    if user.has_usable_password():
        UserIdentity.objects.filter(user=user).delete()
        messages.success(request, gettext("From now on you sign in with your password only."))
    return redirect("portal:account")


def _redirect_uri() -> str:
    return f"{settings.PUBLIC_URL}{reverse('portal:oidc-callback')}"
