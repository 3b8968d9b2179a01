"""Which tenant a command means."""

from __future__ import annotations

from uuid import UUID

from django.core.management.base import CommandError

from accounts.models import User
from accounts.system_tenant import SYSTEM_TENANT_ID

LAWS = "laws"  # the corpus, which has a model, a bill and a budget as tenants have


def parse_tenant(text: str) -> UUID:
    """Return the tenant of what ``identified`` takes, or of an e-mail."""
    try:
        return parse_tenant_id(text)
    except ValueError:
        user = User.objects.filter(email__iexact=text.strip()).first()
    if user is None:
        raise CommandError(f"No user has the e-mail {text!r}, and it is no UUID.")
    return user.pk


def parse_tenant_id(text: str) -> UUID:
    """Return the tenant of a UUID (that need have no row here: Supabase's users have none) or of "laws".

    Raises ``ValueError``.
    """
    return SYSTEM_TENANT_ID if text.strip().lower() == LAWS else UUID(text)
