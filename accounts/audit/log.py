"""Audit log: entries of staff actions, written in the transaction of the action."""

from typing import Any
from uuid import UUID

from accounts.audit.models import AuditEntry
from accounts.error_codes import REASON_REQUIRED, ApiError
from accounts.models import User

MAX_REASON_CHARS = 500
COMMAND_LINE_ACTOR = "command line"


def record_action(
    *,
    by: User | None,  # None: the command line
    action: str,
    reason: str,
    object_type: str,
    object_id: UUID | str,
    tenant_id: UUID | None = None,
    **details: Any,
) -> AuditEntry:
    """Write one entry; ``details`` are ids, codes and counts. Raises ``ApiError("REASON_REQUIRED")``."""
    return AuditEntry.objects.create(
        actor_id=by.pk if by else None,
        actor=by.get_username() if by else COMMAND_LINE_ACTOR,
        action=action,
        reason=clean_reason(reason),
        object_type=object_type,
        object_id=str(object_id),
        tenant_id=tenant_id,
        details=details,
    )


def clean_reason(reason: str) -> str:
    """Return the reason on one line; raise ``ApiError("REASON_REQUIRED")`` without one."""
    reason = " ".join(reason.replace("\0", " ").split())[:MAX_REASON_CHARS]
    if not reason:
        raise ApiError(REASON_REQUIRED, "Say why: it is kept with what you do.", field="reason")
    return reason
