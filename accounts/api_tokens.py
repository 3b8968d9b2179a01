"""API tokens: created and shown once, stored as a digest."""

import hashlib
import secrets
from datetime import datetime

from django.db.models import Q
from django.utils import timezone

from accounts.models import ApiToken, User

PREFIX = "acc_"


def create_token(
    user: User, *, name: str, scope: str = ApiToken.Scope.TENANT, expires_at: datetime | None = None
) -> str:
    """Create a token and return it in plain text, which is not stored."""
    plain = PREFIX + secrets.token_urlsafe(32)
    ApiToken.objects.create(user=user, name=name, scope=scope, digest=token_digest(plain), expires_at=expires_at)
    return plain


def token_digest(plain: str) -> str:
    # The token has 256 random bits: a slow hash would protect nothing and cost every request.
    return hashlib.sha256(plain.encode()).hexdigest()


def find_valid_token(plain: str) -> ApiToken | None:
    """Return the token if it is known, not expired or revoked, and of an active user."""
    is_unexpired = Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now())
    known = ApiToken.objects.select_related("user").filter(
        is_unexpired, digest=token_digest(plain), revoked_at__isnull=True
    )
    return known.filter(user__is_active=True).first()
