"""Permissions of a request: the service, staff, and the id of the tenant."""

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from accounts.authentication import Caller
from accounts.models import User


class IsService(BasePermission):
    """Grants access to the agent platform, by its own token or Supabase's service role; not to tenants."""

    message = "Only the service may do this."

    def has_permission(self, request: Request, view: APIView) -> bool:
        return isinstance(request.user, Caller) and request.user.service


def has_staff_permission(request: Request, permission: str) -> bool:
    user: object = request.user
    if isinstance(user, Caller):
        user = User.objects.filter(pk=user.pk).first() if user.staff else None
    return isinstance(user, User) and user.is_staff and user.has_perm(permission)
