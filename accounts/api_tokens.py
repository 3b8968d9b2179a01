"""API tokens: stored as a digest; issued and revoked by staff with an audit entry."""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from accounts import prepared_statements
from accounts.audit import log
from accounts.error_codes import TOKEN_OF_STAFF, USER_INACTIVE, not_found
from accounts.errors import ApiError
from accounts.models import ApiToken, User

PREFIX = "acc_"
FIND_VALID = """
    SELECT t.user_id, u.is_staff, t.scope FROM api_tokens t JOIN users u ON u.id = t.user_id
    WHERE t.digest = %(digest)s AND t.revoked_at IS NULL AND u.is_active
      AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp())"""


@dataclass(frozen=True, slots=True)
class ValidToken:
    user_id: UUID
    is_staff: bool
    scope: str


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


def find_valid_token(plain: str) -> ValidToken | None:
    """Return the token if it is known, not expired or revoked, and of an active user."""
    rows = prepared_statements.execute(FIND_VALID, {"digest": token_digest(plain)})
    return ValidToken(**rows[0]) if rows else None


def issue_token(
    user: User, *, name: str, scope: str, by: User | None, reason: str, expires_at: datetime | None = None
) -> str:
    """Create a token with an audit entry. Raises ``ApiError``: "USER_INACTIVE", "TOKEN_OF_STAFF"."""
    with transaction.atomic():
        # Locked: a role granted at this moment is either seen here, or revokes this token.
        user = User.objects.select_for_update().get(pk=user.pk)
        if not user.is_active:
            raise ApiError(
                USER_INACTIVE, "This user is not active: no token of theirs would be accepted.", field="user"
            )
        is_staff = user.is_staff or user.is_superuser
        if is_staff and by is not None and not by.is_superuser and by.pk != user.pk:
            detail = (
                "This user is staff: with their token you would act as them. Only they and superusers can make one."
            )
            raise ApiError(TOKEN_OF_STAFF, detail, field="user")
        plain = create_token(user, name=name, scope=scope, expires_at=expires_at)
        token = ApiToken.objects.get(digest=token_digest(plain))
        _write_entry("tokens.make", token, by=by, reason=reason, scope=scope)
    return plain


def revoke_tokens(tokens: QuerySet[ApiToken], *, by: User | None, reason: str) -> int:
    """Revoke tokens; return how many of them were not revoked before."""
    with transaction.atomic():
        valid = list(tokens.filter(revoked_at__isnull=True).select_for_update().order_by("token_id"))
        ApiToken.objects.filter(pk__in=[token.pk for token in valid]).update(revoked_at=Now())
        for token in valid:
            _write_entry("tokens.revoke", token, by=by, reason=reason)
        log.clean_reason(reason)  # also when there is nothing to revoke
    return len(valid)


def _write_entry(action: str, token: ApiToken, *, by: User | None, reason: str, **details: str) -> None:
    log.record_action(
        by=by, action=action, reason=reason, object_type="api_token", object_id=token.pk, tenant_id=token.user_id,
        **details,
    )  # fmt: skip


def find_user(id_or_email: str) -> User:
    """Return the user with this id or e-mail address; raise ``ApiError("NOT_FOUND")``."""
    id_or_email = id_or_email.strip().replace("\0", "")
    try:
        users = User.objects.filter(pk=UUID(id_or_email))
    except ValueError:
        users = User.objects.filter(email__in={id_or_email, id_or_email.lower()})
    user = users.order_by("email").first()
    if user is None:
        raise not_found()
    return user
