"""How a browser is told no: a page with a sentence and, where it helps, when to come back."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from accounts.errors import ApiError
from portal.user_messages import format_pause, headline


def wants_page(request: HttpRequest) -> bool:
    """Tell a browser that opens a page from programs, which take whatever comes and are given JSON."""
    return "text/html" in request.headers.get("Accept", "")


def page(request: HttpRequest, refusal: ApiError) -> HttpResponse:
    """Show a refusal. Asks no database and no session: it may be their fault."""
    shown = {
        "headline": headline(refusal.status),
        "detail": refusal.detail,
        "pause": format_pause(refusal.retry_after) if refusal.retry_after else None,
    }
    answer = HttpResponse(render_to_string("portal/error.html", shown), status=refusal.status)
    answer["Cache-Control"] = "no-store"
    if refusal.retry_after:
        answer["Retry-After"] = str(refusal.retry_after)
    return answer
