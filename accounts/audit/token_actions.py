"""Who may call the API: tokens made and revoked by staff, each with its audit entry."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from accounts import api_tokens
from accounts.audit import log
from accounts.errors import TOKEN_OF_STAFF, USER_INACTIVE, ApiError, not_found
from accounts.models import ApiToken, User


def issue_token(
    user: User, *, name: str, scope: str, by: User | None, reason: str, expires_at: datetime | None = None
) -> str:
    """Return the plain token; nobody can read it again. ``by`` None is the command line.

    Raises ``ApiError``: "USER_INACTIVE", "TOKEN_OF_STAFF".
    """
    with transaction.atomic():
        # Locked: whoever is enlisted as staff at this moment is so before, and refused, or loses this token with it.
        user = User.objects.select_for_update().get(pk=user.pk)
        _require_lendable(user, by)
        plain = api_tokens.create_token(user, name=name, scope=scope, expires_at=expires_at)
        made = ApiToken.objects.get(digest=api_tokens.token_digest(plain))
        _write("tokens.make", made, by=by, reason=reason, scope=scope)
    return plain


def _require_lendable(user: User, by: User | None) -> None:
    if not user.is_active:
        raise ApiError(USER_INACTIVE, "This user is not active: no token of theirs would be accepted.", field="user")
    is_staff = user.is_staff or user.is_superuser
    if is_staff and by is not None and not by.is_superuser and by.pk != user.pk:
        detail = "This user is staff: with their token you would act as them. Only they and superusers can make one."
        raise ApiError(TOKEN_OF_STAFF, detail, field="user")


def revoke_tokens(found: QuerySet[ApiToken], *, by: User | None, reason: str) -> int:
    """Let no request in with these tokens from now on; return how many of them were in force until now."""
    with transaction.atomic():
        in_force = list(found.filter(revoked_at__isnull=True).select_for_update().order_by("token_id"))
        ApiToken.objects.filter(pk__in=[token.pk for token in in_force]).update(revoked_at=Now())
        for token in in_force:
            _write("tokens.revoke", token, by=by, reason=reason)
        log.clean_reason(reason)  # also where there was nothing to revoke
    return len(in_force)


def _write(action: str, token: ApiToken, *, by: User | None, reason: str, **details: str) -> None:
    log.record_action(
        by=by, action=action, reason=reason, object_type="api_token", object_id=token.pk, tenant_id=token.user_id,
        **details,
    )  # fmt: skip


def find_user(said: str) -> User:
    """Return the user with this id or e-mail address; raise ``ApiError("NOT_FOUND")``."""
    said = said.strip().replace("\0", "")
    try:
        found = User.objects.filter(pk=UUID(said))
    except ValueError:
        found = User.objects.filter(email__in={said, said.lower()})
    user = found.order_by("email").first()
    if user is None:
        raise not_found()
    return user
