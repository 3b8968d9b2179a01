"""Tenant argument of management commands: a UUID, an e-mail address, or "laws"."""

from uuid import UUID

from django.core.management.base import CommandError

from accounts.models import User
from accounts.system_tenant import SYSTEM_TENANT_ID

LAWS = "laws"  # the system tenant, which has a model, a bill and a budget as tenants have


def parse_tenant(text: str) -> UUID:
    try:
        return parse_tenant_id(text)
    except ValueError:
        user = User.objects.filter(email__iexact=text.strip()).first()
    if user is None:
        raise CommandError(f"No user has the e-mail {text!r}, and it is no UUID.")
    return user.pk


def parse_tenant_id(text: str) -> UUID:
    """Return the tenant's id of "laws" or a UUID; Supabase's users have no row here. Raises ``ValueError``."""
    return SYSTEM_TENANT_ID if text.strip().lower() == LAWS else UUID(text)
