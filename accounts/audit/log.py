"""Audit log: entries of staff actions, written in the transaction of the action, and of services' calls."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db.models.functions import Now

from accounts.audit.models import AuditEntry
from accounts.common_error_codes import REASON_REQUIRED
from accounts.errors import ApiError

if TYPE_CHECKING:  # whose manager writes an entry
    from accounts.models import User

MAX_REASON_CHARS = 500
COMMAND_LINE_ACTOR = "command line"
SERVICE_ROLE_ACTOR = "service role"  # of Supabase, which names no user
SERVICE_CALL = "tenants.service_call"
SERVICE_CALL_INTERVAL = timedelta(hours=1)  # a service polls without end
UNKNOWN_ACTOR = "unknown"  # before the sign-in
TENANT_ACTOR = "tenant"  # by its id alone: an entry outlives the account


def record_action(
    *,
    by: User | None,  # None: `unnamed`
    unnamed: str = COMMAND_LINE_ACTOR,
    action: str,
    reason: str,
    object_type: str,
    object_id: UUID | str,
    tenant_id: UUID | None = None,
    **details: Any,
) -> AuditEntry:
    """Write one entry; ``details`` are ids, codes and counts. Raises ``ApiError("REASON_REQUIRED")``."""
    if by and by.pk == tenant_id:
        unnamed = TENANT_ACTOR
    return AuditEntry.objects.create(
        actor_id=by.pk if by else None,
        actor=by.get_username() if by and by.pk != tenant_id else unnamed,
        action=action,
        reason=clean_reason(reason),
        object_type=object_type,
        object_id=str(object_id),
        tenant_id=tenant_id,
        details=details,
    )


def record_service_call(*, by: User | None, tenant_id: UUID, call: str) -> None:
    """Write an entry for a service's call on behalf of a tenant, unless the last hour has one of the same call."""
    same = AuditEntry.objects.filter(tenant_id=tenant_id, action=SERVICE_CALL, object_id=call)
    same = same.filter(actor_id=by.pk if by else None, at__gt=Now() - SERVICE_CALL_INTERVAL)
    if not same.exists():
        record_action(
            by=by, unnamed=SERVICE_ROLE_ACTOR, action=SERVICE_CALL, reason="On the tenant's behalf.",
            object_type="api_call", object_id=call, tenant_id=tenant_id,
        )  # fmt: skip


def clean_reason(reason: str) -> str:
    """Return the reason on one line; raise ``ApiError("REASON_REQUIRED")`` without one."""
    reason = " ".join(reason.replace("\0", " ").split())[:MAX_REASON_CHARS]
    if not reason:
        raise ApiError(REASON_REQUIRED, "Say why: it is kept with what you do.", field="reason")
    return reason
