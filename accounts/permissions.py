"""Permissions of a request: the scope of each operation, and staff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from accounts.authentication import Caller, require_scope, required_scope
from accounts.models import User

if TYPE_CHECKING:  # which imports the permissions
    from rest_framework.views import APIView


class HasScope(BasePermission):
    """Grants access to tokens with the operation's scope. Whoever has signed in has all scopes of tenants."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        require_scope(request.user, required_scope(view, str(request.method)))
        return True


def has_staff_permission(request: Request, permission: str) -> bool:
    user: object = request.user
    if isinstance(user, Caller):
        user = User.objects.filter(pk=user.pk).first() if user.staff else None
    return isinstance(user, User) and user.is_staff and user.has_perm(permission)
