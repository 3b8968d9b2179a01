"""Staff pages below the admin: permissions and rendering that the views share."""

from typing import Any, cast

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.template.response import TemplateResponse

from accounts.models import User
from jobs import staff_actions

VIEW = "jobs.view_uploadjob"
READ = "documents.read_text"


def require_permissions(request: HttpRequest, *permissions: str) -> User:
    """Return the member of staff; raise ``PermissionDenied`` without all of ``permissions``."""
    if not request.user.has_perms(permissions):
        raise PermissionDenied
    return cast(User, request.user)


def allowed_actions(user: User) -> list[str]:
    return [verb for verb, permission in staff_actions.PERMISSIONS.items() if user.has_perm(permission)]


def render_page(request: HttpRequest, template: str, title: str, **context: Any) -> TemplateResponse:
    return TemplateResponse(request, template, {**admin.site.each_context(request), "title": title, **context})
