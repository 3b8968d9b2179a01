"""Token vault: providers' tokens, encrypted at rest under INTEGRATIONS_VAULT_KEYS (the first encrypts, all decrypt)."""

import json
import logging
from uuid import UUID, uuid4

from cryptography.fernet import InvalidToken
from django.db import connection

from accounts import encryption
from integrations.error_codes import VAULT_KEY_UNKNOWN, VAULT_TOKEN_MISPLACED
from integrations.models import ConnectedSource, VaultToken
from jobs.outcomes import Permanent, Wait

log = logging.getLogger("accessa.integrations")

MISCONFIGURED_SECONDS = 60.0
KEEP_ORPHANS = "7 days"  # as long as a token is tried again when its successor is refused
DELETED_AT_ONCE = 1000

# A later refresh may have stored tokens that are not in use yet: only older ones are orphaned.
ORPHAN = """
UPDATE vault_tokens v SET orphaned_at = clock_timestamp()
FROM connected_sources s JOIN vault_tokens used ON used.id = s.access_token_vault_id
WHERE s.id = %s AND v.source_id = s.id AND v.orphaned_at IS NULL AND v.created_at <= used.created_at
  AND v.id <> used.id AND v.id IS DISTINCT FROM s.refresh_token_vault_id
"""
DELETE_ORPHANED = f"""
DELETE FROM vault_tokens WHERE id IN (
    SELECT v.id FROM vault_tokens v WHERE v.orphaned_at < clock_timestamp() - interval '{KEEP_ORPHANS}'
    AND NOT EXISTS (
        SELECT FROM connected_sources s WHERE s.id = v.source_id
        AND v.id IN (s.access_token_vault_id, s.refresh_token_vault_id)
    )
    ORDER BY v.orphaned_at LIMIT {DELETED_AT_ONCE} FOR UPDATE SKIP LOCKED
)
"""


class UnknownVaultKey(Wait):
    """No key opens a token. A wait, and no fault of any sync: an operator has to restore a key."""

    code = VAULT_KEY_UNKNOWN
    detail = "No key of the token vault opens this token."

    def __init__(self) -> None:
        super().__init__(MISCONFIGURED_SECONDS, self.code)


def store_token(source: ConnectedSource, kind: str, token: str) -> UUID:
    """Store a token and return the id of its row. Does not change which of the source's tokens is in use."""
    id = uuid4()
    secret = encryption.vault().encrypt(json.dumps({"id": str(id), "source": str(source.pk), "t": token}).encode())
    VaultToken.objects.create(id=id, user_id=source.user_id, source_id=source.pk, kind=kind, secret=secret)
    return id


def read_token(vault_id: UUID, source: ConnectedSource) -> str:
    """Return a token of the source.

    Raises ``UnknownVaultKey`` when none of the keys opens it, which only an operator can mend, and ``Permanent``
    VAULT_TOKEN_MISPLACED when the row is gone or holds the token of another row.
    """
    secret = VaultToken.objects.filter(pk=vault_id, source_id=source.pk).values_list("secret", flat=True).first()
    try:
        opened = json.loads(encryption.vault().decrypt(bytes(secret))) if secret is not None else {}
    except InvalidToken:
        log.error("No key of the token vault opens a token.")
        raise UnknownVaultKey from None
    if (opened.get("id"), opened.get("source")) != (str(vault_id), str(source.pk)):
        raise Permanent(VAULT_TOKEN_MISPLACED)
    return str(opened["t"])


def orphan_replaced_tokens(source_id: UUID) -> None:
    """Mark the source's tokens that those in use have replaced: they are deleted after some days."""
    with connection.cursor() as cursor:
        cursor.execute(ORPHAN, [source_id])


def spare_refresh_tokens(source: ConnectedSource, *, most: int) -> list[UUID]:
    """Return the refresh tokens not in use, newest first: a crash may have left one as the only valid one."""
    tokens = VaultToken.objects.filter(source_id=source.pk, kind=VaultToken.Kind.REFRESH)
    if source.refresh_token_vault_id:
        tokens = tokens.exclude(pk=source.refresh_token_vault_id)
    return list(tokens.order_by("-created_at").values_list("id", flat=True)[:most])


def delete_orphaned_tokens() -> int:
    """Delete tokens that were replaced more than seven days ago; return how many."""
    with connection.cursor() as cursor:
        cursor.execute(DELETE_ORPHANED)
        return int(cursor.rowcount)
