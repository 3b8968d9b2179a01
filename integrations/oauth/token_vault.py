"""Tokens of providers, encrypted at rest: the newest of INTEGRATIONS_VAULT_KEYS encrypts, each of them decrypts."""

from __future__ import annotations

import base64
import json
import logging
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID, uuid4

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from integrations.error_codes import VAULT_KEY_UNKNOWN, VAULT_TOKEN_MISPLACED
from integrations.models import ConnectedSource, VaultToken
from jobs.outcomes import Permanent, Wait

log = logging.getLogger("accessa.integrations")

MISCONFIGURED_SECONDS = 60.0

TOKEN_MISPLACED = VAULT_TOKEN_MISPLACED
KEEP_ORPHANS = "7 days"  # as long as a token is tried again when its successor turns out to be refused
SWEPT_AT_ONCE = 1000
SHORTEST_KEY = 32  # characters of a key that is no Fernet key: it is not stretched, so it must be random itself

# Whoever refreshes next may have stored tokens that are not in use yet: only older ones are replaced.
ORPHAN = """
UPDATE vault_tokens v SET orphaned_at = clock_timestamp()
FROM connected_sources s JOIN vault_tokens used ON used.id = s.access_token_vault_id
WHERE s.id = %s AND v.source_id = s.id AND v.orphaned_at IS NULL AND v.created_at <= used.created_at
  AND v.id <> used.id AND v.id IS DISTINCT FROM s.refresh_token_vault_id
"""
SWEEP = f"""
DELETE FROM vault_tokens WHERE id IN (
    SELECT v.id FROM vault_tokens v WHERE v.orphaned_at < clock_timestamp() - interval '{KEEP_ORPHANS}'
    AND NOT EXISTS (
        SELECT FROM connected_sources s WHERE s.id = v.source_id
        AND v.id IN (s.access_token_vault_id, s.refresh_token_vault_id)
    )
    ORDER BY v.orphaned_at LIMIT {SWEPT_AT_ONCE} FOR UPDATE SKIP LOCKED
)
"""
REWRITE = "UPDATE vault_tokens SET secret = %s WHERE id = %s AND secret = %s"


class UnknownVaultKey(Wait):
    """A wait, and no fault of any sync: an operator has to put a key back."""

    code = VAULT_KEY_UNKNOWN
    detail = "No key of the token vault opens this token."

    def __init__(self) -> None:
        super().__init__(MISCONFIGURED_SECONDS, self.code)


def store_token(source: ConnectedSource, kind: str, token: str) -> UUID:
    """Keep a token; return the id of its row. Says nothing of which of the source's tokens is in use."""
    id = uuid4()
    VaultToken.objects.create(
        id=id, user_id=source.user_id, source_id=source.pk, kind=kind, secret=_seal(id, token, source)
    )
    return id


def read_token(vault_id: UUID, source: ConnectedSource) -> str:
    """Return a token of the source.

    Raises ``KeyUnknown`` when none of the keys opens it, which only an operator can mend, and ``Permanent``
    VAULT_TOKEN_MISPLACED when the row is gone or holds the token of another row.
    """
    row = VaultToken.objects.filter(pk=vault_id, source_id=source.pk).values_list("secret", flat=True).first()
    if row is None:
        raise _misplaced()
    try:
        opened = json.loads(_ring().decrypt(bytes(row)))
    except InvalidToken:
        log.error("No key of the token vault opens a token.")
        raise UnknownVaultKey from None
    if (opened["id"], opened["source"]) != (str(vault_id), str(source.pk)):
        raise _misplaced()
    return str(opened["t"])


def orphan_replaced_tokens(source_id: UUID) -> None:
    """Note that the source's older tokens are replaced by those in use: they are removed after some days."""
    with connection.cursor() as cursor:
        cursor.execute(ORPHAN, [source_id])


def delete_tokens(source_id: UUID) -> None:
    """Remove every token of the source."""
    VaultToken.objects.filter(source_id=source_id).delete()


def spare_refresh_tokens(source: ConnectedSource, *, most: int) -> list[UUID]:
    """Return the refresh tokens that are not in use, the newest first: a crash may have left one the only good one."""
    found = VaultToken.objects.filter(source_id=source.pk, kind=VaultToken.Kind.REFRESH)
    found = found.exclude(pk=source.refresh_token_vault_id) if source.refresh_token_vault_id else found
    return list(found.order_by("-created_at").values_list("id", flat=True)[:most])


def delete_orphaned_tokens() -> int:
    """Remove tokens that were replaced more than seven days ago; return how many."""
    with connection.cursor() as cursor:
        cursor.execute(SWEEP)
        return int(cursor.rowcount)


class RotationCounts(NamedTuple):
    """Of the tokens looked at: under the newest key before, under an older one before, opened by no key."""

    newest: int = 0
    older: int = 0
    unknown: int = 0
    last: UUID | None = None  # the token that was looked at last; None: there are no more


def rotate_keys(after: UUID | None, *, most: int, write: bool) -> RotationCounts:
    """Look at the next ``most`` tokens by id, and encrypt under the newest key those that are not, if to ``write``."""
    rows = VaultToken.objects.filter(**({"pk__gt": after} if after else {})).order_by("pk")[:most]
    newest, older, unknown, last = 0, [], 0, None
    for row in rows:
        last, secret = row.pk, bytes(row.secret)
        if _opens(_newest(), secret):
            newest += 1
        elif _opens(_ring(), secret):
            older.append((_ring().rotate(secret), row.pk, secret))
        else:
            unknown += 1
    if write and older:
        with connection.cursor() as cursor:
            cursor.executemany(REWRITE, older)
    return RotationCounts(newest, len(older), unknown, last)


def _misplaced() -> Permanent:
    return Permanent(TOKEN_MISPLACED, "The token is not where it was kept.")


def _seal(id: UUID, token: str, source: ConnectedSource) -> bytes:
    return _ring().encrypt(json.dumps({"id": str(id), "source": str(source.pk), "t": token}).encode())


def _opens(ring: Fernet | MultiFernet, secret: bytes) -> bool:
    try:
        ring.decrypt(secret)
    except InvalidToken:
        return False
    return True


def _newest() -> Fernet:
    return _fernets(tuple(settings.INTEGRATIONS_VAULT_KEYS))[0]


def _ring() -> MultiFernet:
    return MultiFernet(_fernets(tuple(settings.INTEGRATIONS_VAULT_KEYS)))


@lru_cache(maxsize=8)
def _fernets(keys: tuple[str, ...]) -> list[Fernet]:
    if not keys:
        raise ImproperlyConfigured("INTEGRATIONS_VAULT_KEYS names no key.")
    return [_fernet(key.strip()) for key in keys]


def _fernet(key: str) -> Fernet:
    """Take a Fernet key as it is; make one of any other secret, so that a laptop's own needs no form."""
    try:
        return Fernet(key)
    except ValueError:
        pass
    if len(key) < SHORTEST_KEY:
        raise ImproperlyConfigured(f"A key of INTEGRATIONS_VAULT_KEYS is shorter than {SHORTEST_KEY} characters.")
    made = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"accessa token vault").derive(key.encode())
    return Fernet(base64.urlsafe_b64encode(made))
