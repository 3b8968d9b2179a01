"""Middleware that activates the reader's language on tenants' pages, its switch, and the script's sentences."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import translation
from django.utils.cache import patch_vary_headers
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import cache_control
from django.views.i18n import JavaScriptCatalog

from accounts.common_error_codes import METHOD_NOT_ALLOWED
from accounts.errors import ApiError
from accounts.models import Language, User
from portal.error_pages import error_page
from portal.reader_language import reader_language

MAX_PATH_CHARS = 2000


class LanguageMiddleware:
    """Activate the language of a page of the portal. The API and the console speak ``LANGUAGE_CODE``."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with translation.override(settings.LANGUAGE_CODE):
            response = self.get_response(request)
            if _is_page(request):
                response.headers.setdefault("Content-Language", translation.get_language() or settings.LANGUAGE_CODE)
                patch_vary_headers(response, ("Accept-Language",))
        return response

    def process_view(self, request: HttpRequest, view: object, args: object, kwargs: dict[str, Any]) -> None:
        if _is_page(request):
            translation.activate(reader_language(request))


def _is_page(request: HttpRequest) -> bool:
    return request.resolver_match is not None and request.resolver_match.namespace == "portal"


def store_language(user: User, language: str) -> None:
    """Keep the language for pages in other browsers, and for mails."""
    User.objects.filter(pk=user.pk).update(language=language)


def switch(request: HttpRequest) -> HttpResponse:
    """Choose the language of this browser and, who is signed in, of their account; then go back to the page."""
    if request.method != "POST":
        return error_page(ApiError(METHOD_NOT_ALLOWED), request)
    back = request.POST.get("next", "")[:MAX_PATH_CHARS]
    if not url_has_allowed_host_and_scheme(back, allowed_hosts=None):
        back = reverse("portal:home")
    response = HttpResponseRedirect(back, status=HTTPStatus.SEE_OTHER)
    language = request.POST.get("language")
    if language not in Language.values:
        return response
    user = get_user(request)
    if isinstance(user, User):
        store_language(user, language)
    response.set_cookie(
        settings.LANGUAGE_COOKIE_NAME,
        language,
        max_age=settings.LANGUAGE_COOKIE_AGE,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    return response


@cache_control(max_age=600)
def script_sentences(request: HttpRequest, language: str) -> HttpResponseBase:
    """Return ``gettext`` and ``ngettext`` for the pages' script, with the sentences of a language."""
    if language not in Language.values:
        raise Http404
    with translation.override(language):
        return JavaScriptCatalog.as_view(packages=["portal"])(request)
