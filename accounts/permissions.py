"""Permissions of API callers: the service, the tenant's id, and staff permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from accounts.authentication import Caller
from accounts.models import User

if TYPE_CHECKING:  # DRF's views load this module
    from rest_framework.views import APIView


class IsService(BasePermission):
    """Grants access to the agent platform, by its own token or Supabase's service role; not to tenants."""

    message = "Only the service may do this."

    def has_permission(self, request: Request, view: APIView) -> bool:
        return isinstance(request.user, Caller) and request.user.service


def caller_id(request: Request) -> UUID:
    """Return the id of the tenant of a request, authenticated by a bearer token or a session."""
    user = request.user
    return user.user_id if isinstance(user, Caller) else UUID(str(user.pk))


def has_staff_permission(request: Request, permission: str) -> bool:
    """Tell whether the caller is staff and has ``permission``, as in the admin."""
    user: object = request.user
    if isinstance(user, Caller):
        user = User.objects.filter(pk=user.user_id).first() if user.staff else None
    return isinstance(user, User) and user.is_staff and user.has_perm(permission)
