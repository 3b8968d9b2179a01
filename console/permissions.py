"""Who of the staff may see what, and how a page of theirs is answered."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.template.response import TemplateResponse

from accounts.models import User
from jobs import staff_actions

VIEW = "jobs.view_uploadjob"
READ = "documents.read_text"


def require(request: HttpRequest, *permissions: str) -> User:
    """Return the member of staff who asks; raise ``PermissionDenied`` without all of ``permissions``."""
    if not request.user.has_perms(permissions):
        raise PermissionDenied
    return cast(User, request.user)


def verbs(user: User) -> list[str]:
    """Return what ``user`` may do to a job."""
    return [verb for verb, permission in staff_actions.PERMISSIONS.items() if user.has_perm(permission)]


def answer(request: HttpRequest, template: str, title: str, **context: Any) -> TemplateResponse:
    return TemplateResponse(request, template, {**admin.site.each_context(request), "title": title, **context})
