"""Error pages for browsers: a sentence and, where waiting helps, when to come back."""

from http import HTTPStatus

from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils import translation
from django.utils.translation import gettext_lazy as _

from accounts.common_error_codes import NOT_FOUND
from accounts.errors import ApiError
from portal.reader_language import browser_language, reader_language
from portal.user_messages import format_pause, headline

MISSING = _("It was deleted, or the address is not complete.")


def wants_page(request: HttpRequest) -> bool:
    """Tell a browser that opens a page from programs, which accept anything and get JSON."""
    return "text/html" in request.headers.get("Accept", "")


def error_page(error: ApiError, request: HttpRequest) -> HttpResponse:
    """Return the page of an error, with the menu of who made the request, in their language.

    Of an error of ours it has no menu: that takes the database and the session, which may be the cause.
    """
    has_menu = error.status < HTTPStatus.INTERNAL_SERVER_ERROR and hasattr(request, "user")
    with translation.override(reader_language(request) if has_menu else browser_language(request)):
        context = {
            "support_email": settings.SUPPORT_EMAIL,
            "headline": headline(error.status),
            "detail": MISSING if error.code == NOT_FOUND else error.detail,
            "pause": format_pause(error.retry_after) if error.retry_after else None,
        }
        try:
            page = render_to_string("portal/error.html", context, request if has_menu else None)
        except DatabaseError:
            page = render_to_string("portal/error.html", context)
    return HttpResponse(page, status=error.status, headers={"Cache-Control": "no-store"} | error.headers)
