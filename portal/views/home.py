"""A tenant's documents: upload, progress, retry."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render

from accounts.errors import Context, error_codes
from portal.document_list import Listed
from portal.document_list import listed as documents
from portal.views.auth import only, page, tenant

# Seconds between two looks at the list, by how many looks in a row have seen nothing new.
PACE = (1, 1, 2, 3, 5, 8, 10)


@page
def home(request: HttpRequest) -> HttpResponse:
    """Show the documents and take new ones."""
    only(request, "GET", "HEAD")
    place = place_of(request.GET)
    context = shown(request, documents(tenant(request), place), place)
    return render(request, "portal/documents.html", context | _uploads())


@page
def listed(request: HttpRequest) -> HttpResponse:
    """Show the list alone, for a page that is open; it says itself when it is asked for next, if at all."""
    only(request, "GET", "HEAD")
    place = place_of(request.GET)
    found = shown(request, documents(tenant(request), place), place)
    if found["quiet"] == len(PACE):
        return HttpResponse(status=HTTPStatus.NO_CONTENT)  # what is shown stays, and is asked for at the same pace
    return render(request, "portal/document_list.html", found)


def shown(request: HttpRequest, found: Listed, place: str) -> dict[str, Any]:
    """Return what the list's template needs: ``every`` is the pause until the next look, in seconds."""
    still = request.GET.get("seen") == found.fingerprint
    quiet = min(_number(request.GET.get("quiet")) + 1, len(PACE)) if still else 0
    every = PACE[min(quiet, len(PACE) - 1)] if found.active else None
    return {"listed": found, "place": place, "quiet": quiet, "every": every}


def place_of(said: QueryDict) -> str:
    return said.get("from", "")[:100]


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 4 else 0


def _uploads() -> dict[str, Any]:
    """Return what the page's script must know of uploading."""
    told = {
        "sentences": {
            code: known.tenant_message for code, known in error_codes(Context.REQUEST).items() if known.tenant_message
        },
        "most": settings.MAX_FILE_BYTES,
        "longest": settings.MAX_FILENAME_CHARS,
        "ours": settings.PUBLIC_URL,
        "encryption": settings.S3_SERVER_SIDE_ENCRYPTION,
        "key": settings.S3_KMS_KEY_ID,
    }
    return {"told": told, "most_mb": settings.MAX_FILE_BYTES // 1_048_576, "most_pages": settings.MAX_PAGES}
