"""How often a tenant may search."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings

from accounts import rate_limit


def spend(user_id: UUID) -> None:
    """Count one question. Raises ``Refused("SEARCH_LIMIT_REACHED")``, with when to come back."""
    limit = settings.SEARCHES_PER_MINUTE
    detail = f"There can be {limit} searches a minute."
    rate_limit.spend(f"search:{user_id}", limit=limit, window=60, code="SEARCH_LIMIT_REACHED", detail=detail)
