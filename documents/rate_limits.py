"""How often a tenant may look at pages: their texts and pictures are made for each look."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings

from accounts import rate_limit


def spend(user_id: UUID) -> None:
    """Count one look at a page. Raises ``Refused("LOOK_LIMIT_REACHED")``, with when to come back."""
    limit = settings.PAGE_VIEWS_PER_MINUTE
    detail = f"Pages can be looked at {limit} times a minute."
    rate_limit.spend(f"look:{user_id}", limit=limit, window=60, code="LOOK_LIMIT_REACHED", detail=detail)
