"""API tokens: stored as a digest; made and revoked by their owners, and by staff with an audit entry."""

import hashlib
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from accounts import prepared_statements
from accounts.audit import log
from accounts.common_error_codes import (
    ACCOUNT_REQUIRED,
    INSUFFICIENT_SCOPE,
    NOT_FOUND,
    TOKEN_OF_STAFF,
    TOO_MANY_TOKENS,
    USER_INACTIVE,
    not_found,
)
from accounts.errors import ApiError
from accounts.models import ApiToken, User
from accounts.rls import as_tenant

Scope = ApiToken.Scope

PREFIX = "acc_"
BY_OWNER = "by its owner"
PROGRAM_SCOPES: frozenset[str] = frozenset({Scope.READ, Scope.WRITE, Scope.SEARCH})
TENANT_SCOPES: frozenset[str] = PROGRAM_SCOPES | {Scope.WEBHOOKS, Scope.TOKENS, Scope.EXPORT}
ALL_SCOPES: frozenset[str] = frozenset(Scope)
MAX_TOKENS = 50  # of a user: valid, or made within a day
NAME_CHARS, MAX_TOKEN_DAYS = 100, 3650
SHOWN_COLUMNS = ("token_id", "user_id", "name", "scopes", "created_at", "last_used_at", "expires_at", "revoked_at")
FIND_VALID = """
    SELECT t.token_id, t.user_id, u.is_staff, t.scopes, t.expires_at,
           t.last_used_at IS NULL OR t.last_used_at < clock_timestamp() - interval '1 hour' AS is_use_due
    FROM api_tokens t JOIN users u ON u.id = t.user_id
    WHERE t.digest = %(digest)s AND t.revoked_at IS NULL AND u.is_active
      AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp())"""
# Of concurrent requests one writes, and none waits.
RECORD_USE = """
    UPDATE api_tokens SET last_used_at = clock_timestamp()
    WHERE token_id = (
        SELECT token_id FROM api_tokens
        WHERE token_id = %(token_id)s
          AND (last_used_at IS NULL OR last_used_at < clock_timestamp() - interval '1 hour')
        FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING CASE WHEN %(is_alone)s THEN set_config('synchronous_commit', 'off', true) END"""


@dataclass(frozen=True, slots=True)
class ValidToken:
    token_id: UUID
    user_id: UUID
    is_staff: bool
    scopes: Sequence[str]
    expires_at: datetime | None
    is_use_due: bool  # the last use was recorded an hour ago or never


def create_token(
    user: User, *, name: str, scopes: Collection[str] = TENANT_SCOPES, expires_at: datetime | None = None
) -> str:
    """Create a token and return it in plain text, which is not stored."""
    return _insert_token(user, name=name, scopes=scopes, expires_at=expires_at)[0]


def _insert_token(
    user: User, *, name: str, scopes: Collection[str], expires_at: datetime | None, made_by: UUID | None = None
) -> tuple[str, ApiToken]:
    plain = PREFIX + secrets.token_urlsafe(32)
    ordered = [scope for scope in Scope if scope in scopes]
    token = ApiToken.objects.create(
        user=user, name=name, scopes=ordered, digest=token_digest(plain), expires_at=expires_at, made_by_id=made_by
    )
    return plain, token


def token_digest(plain: str) -> str:
    # The token has 256 random bits: a slow hash would protect nothing and cost every request.
    return hashlib.sha256(plain.encode()).hexdigest()


def find_valid_token(plain: str) -> ValidToken | None:
    """Return the token if it is known, not expired or revoked, and of an active user."""
    rows = prepared_statements.execute(FIND_VALID, {"digest": token_digest(plain)})
    if not rows:
        return None
    token = ValidToken(**rows[0])
    if token.is_use_due:
        use = {"token_id": token.token_id, "is_alone": connection.get_autocommit()}
        prepared_statements.execute(RECORD_USE, use)
    return token


def issue_token(
    user: User,
    *,
    name: str,
    scopes: Collection[str],
    by: User | None,
    reason: str,
    expires_at: datetime | None = None,
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
        plain, token = _insert_token(user, name=name, scopes=scopes, expires_at=expires_at)
        _write_entry("tokens.make", token, by=by, reason=reason, scopes=token.scopes)
    return plain


def tenant_tokens(user_id: UUID) -> QuerySet[ApiToken]:
    """Return a user's tokens that are not revoked, with the columns that tenants may read."""
    return ApiToken.objects.filter(user_id=user_id, revoked_at=None).only(*SHOWN_COLUMNS)


def issue_own_token(
    user_id: UUID,
    *,
    name: str,
    scopes: Collection[str],
    days: int | None = None,
    granted: Collection[str] = TENANT_SCOPES,
    expires_by: datetime | None = None,
    made_by: UUID | None = None,
) -> tuple[str, ApiToken]:
    """Create a token for its owner; return it in plain text and its row.

    ``granted``, ``expires_by`` and ``made_by`` are the scopes, the end and the id of the token that makes it: a new one
    has no more scopes, ends no later, and is revoked with it. Raises ``ApiError``: INSUFFICIENT_SCOPE,
    ACCOUNT_REQUIRED, TOO_MANY_TOKENS.
    """
    missing = set(scopes) - (set(granted) & TENANT_SCOPES)
    if missing:
        detail = f"A token makes tokens of its own scopes only, and it lacks {', '.join(sorted(missing))}."
        raise ApiError(INSUFFICIENT_SCOPE, detail, field="scopes")
    now = timezone.now()
    ends = [end for end in (now + timedelta(days=days) if days else None, expires_by) if end]
    with transaction.atomic():
        user = User.objects.select_for_update().filter(pk=user_id).first()
        if user is None:
            raise ApiError(ACCOUNT_REQUIRED)
        # Locked: a revocation at this moment is either seen here, or sees the new token.
        if made_by and not ApiToken.objects.select_for_update().filter(pk=made_by, revoked_at=None).exists():
            raise ApiError(INSUFFICIENT_SCOPE, "The token that would make this one is revoked.")
        valid = Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now))
        recent = Q(created_at__gt=now - timedelta(days=1))
        if ApiToken.objects.filter(valid | recent, user=user).count() >= MAX_TOKENS:
            detail = f"You can have {MAX_TOKENS} tokens, and make as many a day. Revoke some, or wait a day."
            raise ApiError(TOO_MANY_TOKENS, detail)
        plain, token = _insert_token(
            user, name=name, scopes=scopes, expires_at=min(ends, default=None), made_by=made_by
        )
        _write_entry("tokens.make", token, by=user, reason=BY_OWNER, scopes=token.scopes)
    token.refresh_from_db(fields=["created_at"])
    return plain, token


def revoke_own_token(user_id: UUID, token_id: UUID) -> None:
    """Revoke a token for its owner. Raises ``ApiError("NOT_FOUND")``."""
    with as_tenant(user_id):
        token = tenant_tokens(user_id).filter(pk=token_id).first()
    if token is None:
        raise not_found()
    revoke_tokens(ApiToken.objects.filter(pk=token_id), by=token.user, reason=BY_OWNER)


def revoke_tokens(tokens: QuerySet[ApiToken], *, by: User | None, reason: str) -> int:
    """Revoke tokens and those that they made; return how many of all these were not revoked before."""
    with transaction.atomic():
        valid = made = list(tokens.filter(revoked_at__isnull=True).select_for_update().order_by("token_id"))
        while made:
            of_these = ApiToken.objects.filter(made_by__in=made, revoked_at=None).exclude(pk__in=[t.pk for t in valid])
            made = list(of_these.select_for_update().order_by("token_id"))
            valid = [*valid, *made]
        ApiToken.objects.filter(pk__in=[token.pk for token in valid]).update(revoked_at=Now())
        for token in valid:
            _write_entry("tokens.revoke", token, by=by, reason=reason)
        log.clean_reason(reason)  # also when there is nothing to revoke
    return len(valid)


def _write_entry(action: str, token: ApiToken, *, by: User | None, reason: str, **details: Any) -> None:
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
        raise ApiError(NOT_FOUND, f"There is no user {id_or_email!r}.")
    return user
