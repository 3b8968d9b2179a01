"""Error pages for browsers: a sentence and, where waiting helps, when to come back."""

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from accounts.errors import ApiError
from portal.user_messages import format_pause, headline


def wants_page(request: HttpRequest) -> bool:
    """Tell a browser that opens a page from programs, which accept anything and get JSON."""
    return "text/html" in request.headers.get("Accept", "")


def error_page(error: ApiError) -> HttpResponse:
    """Return the page of an error. It uses neither the database nor the session, which may be the cause."""
    context = {
        "headline": headline(error.status),
        "detail": error.detail,
        "pause": format_pause(error.retry_after) if error.retry_after else None,
    }
    headers = {"Cache-Control": "no-store"} | error.headers
    return HttpResponse(render_to_string("portal/error.html", context), status=error.status, headers=headers)
