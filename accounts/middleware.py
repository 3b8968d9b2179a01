"""Middleware: nobody is signed in while the code of two-step sign-in is missing."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import resolve_url
from django.utils.functional import SimpleLazyObject

from accounts import totp

CODE_PAGE = "portal:sign-in-code"


class TotpMiddleware:
    """Replaces ``request.user`` by an anonymous user, and leads from a sign-in form to the page that asks for the code.

    The session of every way to sign in passes here: pages, console and API know nothing of it.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        session_user: Any = request.user
        request.user = SimpleLazyObject(lambda: totp.admitted(request.session, session_user))  # type: ignore[assignment]
        is_form = request.method == "GET" and request.path in map(resolve_url, (settings.LOGIN_URL, "admin:login"))
        if is_form and session_user.is_authenticated and not request.user.is_authenticated:
            next_page = {"next": request.GET.get("next", "")}
            return HttpResponseRedirect(f"{resolve_url(CODE_PAGE)}?{urlencode(next_page)}")
        return self.get_response(request)
