"""Error pages of the admin: staff whose page is refused or gone keep the menu and the search box."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from accounts.errors import ApiError

STATUSES = (400, 403, 404)  # of others the database may be the cause, which the menu reads
HEADLINES = {400: "This cannot be done", 403: "You may not see this", 404: "There is no such page"}


def wants_staff_page(request: HttpRequest, error: ApiError) -> bool:
    """Tell whether a member of staff is refused a page below the admin's address."""
    if error.status not in STATUSES or not request.path.startswith("/admin/"):
        return False  # and the user is not read: the database may be the cause
    user = getattr(request, "user", None)
    return bool(user and user.is_active and user.is_staff)


def staff_error_page(request: HttpRequest, error: ApiError) -> HttpResponse:
    context = {**admin.site.each_context(request), "title": HEADLINES[error.status], "error": error}
    content = render_to_string("console/error.html", context, request)
    return HttpResponse(content, status=error.status, headers={"Cache-Control": "no-store"} | error.headers)
