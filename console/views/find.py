"""Search of the console: exact texts lead to their page; a search by beginnings needs a reason."""

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_safe

from accounts.audit import log
from accounts.errors import ApiError
from console import lookup
from console.views import render_page, require_permissions

MAX_TERM_CHARS = 320  # an e-mail address
PREFIX_SEARCH = "accounts.view_user"


def _term(text: str) -> str:
    return text.replace("\0", "").strip()[:MAX_TERM_CHARS]


@require_safe
def find(request: HttpRequest) -> HttpResponse:
    """Redirect to the one page that has the text; list several; offer the search by beginnings without any."""
    user, term = require_permissions(request), _term(request.GET.get("q", ""))
    hits = lookup.find(user, term)
    if len(hits) == 1:
        return HttpResponseRedirect(hits[0].url)
    may_search = user.has_perms([PREFIX_SEARCH, "documents.view_document"])
    return render_page(
        request, "console/find.html", "Find", find_text=term, hits=hits, is_exact=True, may_search=may_search
    )


def find_by_prefix(request: HttpRequest) -> HttpResponse:
    """Record who searches names by their beginning and why, then show what was found."""
    user = require_permissions(request, PREFIX_SEARCH, "documents.view_document")
    if request.method != "POST":
        raise PermissionDenied
    term = _term(request.POST.get("q", ""))
    hits = lookup.find_by_prefix(user, term)
    context = {"find_text": term, "may_search": True, "is_exact": False}
    try:
        # The beginning itself is a tenant's text; the ids say what was shown.
        log.record_action(
            by=user, action="names.search", reason=request.POST.get("reason", ""), object_type="names",
            object_id="prefix", characters=len(term), found=[str(hit.pk) for hit in hits],
        )  # fmt: skip
    except ApiError as error:
        messages.error(request, f"{error.code}: {error.detail}")
        return render_page(request, "console/find.html", "Find", hits=[], **context)
    return render_page(request, "console/find.html", "Find", hits=hits, is_searched=True, **context)
