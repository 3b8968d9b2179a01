"""Access rules of pages for tenants: signed in, each tenant its own; errors are pages, nothing is cached."""

from collections.abc import Callable
from functools import wraps
from typing import Any, cast
from urllib.parse import urlencode, urlsplit
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext
from django_htmx.http import HttpResponseClientRedirect

from accounts.common_error_codes import FORM_EXPIRED, METHOD_NOT_ALLOWED, not_found
from accounts.errors import ApiError
from accounts.models import User
from documents.storage.buckets import storage_error
from portal.error_pages import error_page

View = Callable[..., HttpResponseBase]


def tenant_page(*methods: str) -> Callable[[View], View]:
    """Decorate a view for signed-in tenants: no cache keeps the response, and an error is a page, too."""

    def decorate(view: View) -> View:
        @wraps(view)
        def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            try:
                if request.method not in methods:
                    raise ApiError(METHOD_NOT_ALLOWED)
                response = view(request, *args, **kwargs)
            except ApiError as error:
                response = error_page(error, request)
            except Http404:
                response = error_page(not_found(), request)
            except OSError as error:  # the file store
                response = error_page(storage_error(error), request)
            response["Cache-Control"] = "no-store"
            return response

        @wraps(view)
        def respond_or_sign_in(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return _sign_in_again(request)
            return respond(request, *args, **kwargs)

        return respond_or_sign_in

    return decorate


def _sign_in_again(request: HttpRequest) -> HttpResponseBase:
    """Redirect to the form, which leads back: to the page asked for, or to the one whose form or fragment this was."""
    lacks_code = isinstance(get_user(request), User)  # of two-step sign-in
    if settings.SESSION_COOKIE_NAME in request.COOKIES and not lacks_code:
        messages.info(request, gettext("Your session has expired. Sign in to go on where you were."))
    form = resolve_url(settings.LOGIN_URL)
    if getattr(request, "htmx", False):  # the whole page must go to the form
        back = request.headers.get("HX-Current-URL", "")
    elif request.method in ("GET", "HEAD"):
        return redirect_to_login(request.get_full_path())
    else:
        back = request.headers.get("Referer", "")
    address = f"{form}?{urlencode({'next': path})}" if (path := _path_of(back)) else form
    return HttpResponseClientRedirect(address) if getattr(request, "htmx", False) else HttpResponseRedirect(address)


def _path_of(address: str) -> str:
    """Return path and query of an address. The form checks that they lead to one of our own pages."""
    try:
        return urlsplit(address)._replace(scheme="", netloc="", fragment="").geturl()
    except ValueError:
        return ""


def require_own_page(request: HttpRequest) -> None:
    """Refuse a GET that changes something, where another site has led the browser to it. Raises ``ApiError``."""
    if request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
        raise ApiError(FORM_EXPIRED)


def signed_in_user(request: HttpRequest) -> User:
    return cast(User, request.user)


def tenant_id(request: HttpRequest) -> UUID:
    """Return the tenant of the pages: the signed-in user. Staff have no more rights here than others."""
    return UUID(str(request.user.pk))


def redirect_after_sign_in(request: HttpRequest, next_page: str) -> HttpResponseRedirect:
    """Redirect to the page that was asked for, if it is one of ours."""
    is_ours = url_has_allowed_host_and_scheme(
        next_page, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return HttpResponseRedirect(next_page if is_ours else resolve_url(settings.LOGIN_REDIRECT_URL))
