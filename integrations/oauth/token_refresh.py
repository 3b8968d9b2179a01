"""An access token that is good for a page: refreshed once, however many ask (spec 002 §2)."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import connection, transaction
from django.db.models import DateTimeField, Func

from accounts.errors import ErrorCode
from integrations.error_codes import (
    PROVIDER_NOT_CONFIGURED,
    REFRESH_TOKEN_INVALID,
    REFRESH_TOKEN_INVALID_STATUS,
    SOURCE_DISCONNECTED,
    SOURCE_NOT_ACTIVE,
    TOKEN_BEING_REFRESHED,
)
from integrations.models import ConnectedSource, VaultToken
from integrations.oauth import token_endpoint, token_vault
from integrations.oauth.token_endpoint import GrantRefused, TokenResponse
from jobs import failpoints
from jobs.outcomes import Permanent, Wait

log = logging.getLogger("accessa.integrations")

FIXTURE_TOKEN = "recorded"  # noqa: S105  the token of fixture mode, which nobody looks at
LEASE_SECONDS = 60
SPARES = 2  # older tokens that are tried once the one in use is refused
PATIENCE_SECONDS, POLL_SECONDS = 5.0, 0.05
INVALID = REFRESH_TOKEN_INVALID_STATUS

# clock_timestamp(), not now(): the token is compared with the time at which it is going to be used.
LEASE = f"""
UPDATE connected_sources SET refresh_lease = %(lease)s,
    refresh_lease_until = clock_timestamp() + make_interval(secs => {LEASE_SECONDS})
WHERE id = %(id)s AND status = 'active' AND (token_expires_at IS NULL OR access_token_vault_id IS NULL
      OR token_expires_at <= clock_timestamp() + make_interval(secs => %(skew)s))
  AND (refresh_lease_until IS NULL OR refresh_lease_until <= clock_timestamp())
RETURNING clock_timestamp()
"""
_MINE = """WHERE id = %(id)s AND status = 'active' AND refresh_lease = %(lease)s
  AND token_expires_at IS NOT DISTINCT FROM %(previous)s::timestamptz"""
_DONE = "refresh_lease = NULL, refresh_lease_until = NULL, updated_at = clock_timestamp()"
SWING = f"""
UPDATE connected_sources SET access_token_vault_id = %(access)s, refresh_token_vault_id = %(refresh)s,
    token_expires_at = %(asked)s::timestamptz + make_interval(secs => %(seconds)s), {_DONE}
{_MINE}
"""
BREAK = f"UPDATE connected_sources SET status = 'error', status_message = %(message)s, {_DONE} {_MINE}"
RELEASE = """
UPDATE connected_sources SET refresh_lease = NULL, refresh_lease_until = NULL
WHERE id = %(id)s AND refresh_lease = %(lease)s
"""
# While a refresh is under way the token is going to be replaced anyhow, and its guard must find what it has read.
EXPIRE = """
UPDATE connected_sources SET token_expires_at = NULL, updated_at = clock_timestamp()
WHERE id = %(id)s AND token_expires_at IS NOT DISTINCT FROM %(previous)s::timestamptz
  AND (refresh_lease_until IS NULL OR refresh_lease_until <= clock_timestamp())
"""


class SourceBroken(Exception):
    """Nothing can be fetched from the source until its tenant acts. ``code`` is one of ours."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class RefreshLease:
    """The right to refresh a source's tokens: as it was, and when that was by the database's clock."""

    lease: UUID
    source: ConnectedSource
    asked: datetime

    @property
    def params(self) -> dict[str, Any]:
        return {"id": self.source.pk, "lease": self.lease, "previous": self.source.token_expires_at}


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """What a refresh brought. ``refresh`` is the token to keep, or "" when the row in use has it already."""

    tokens: TokenResponse
    refresh: str = field(repr=False)


def fresh_token(source_id: UUID) -> tuple[ConnectedSource, str]:
    """Return the source and an access token good for TOKEN_REFRESH_SKEW_SECONDS at least. Call it outside transactions.

    Raises ``SourceBroken`` (what it says of the source is committed), ``Retryable`` and ``Wait`` (the provider, or
    another who refreshes these tokens at present and did not end within seconds).
    """
    until, others = time.monotonic() + PATIENCE_SECONDS, False
    while True:
        source, now = _seen(source_id)
        if settings.INTEGRATIONS_USE_FIXTURES:
            return source, FIXTURE_TOKEN
        if source.access_token_vault_id and _is_good(source, now):
            return source, token_vault.read_token(source.access_token_vault_id, source)
        others = others or _is_leased(source, now)
        if not _is_leased(source, now):
            if others:  # whoever refreshed has failed: a crowd that waited for it must not call one after the other
                raise _elsewhere()
            if (leased := _lease(source_id)) and (token := _refreshed(leased)):
                return _seen(source_id)[0], token
        if time.monotonic() > until:
            raise _elsewhere()
        time.sleep(POLL_SECONDS)


def expire_token(source_id: UUID, token_expires_at: datetime | None) -> None:
    """Note that the provider refused the access token which was said to last until then: it is refreshed next."""
    with connection.cursor() as cursor:
        cursor.execute(EXPIRE, {"id": source_id, "previous": token_expires_at})


def _seen(source_id: UUID) -> tuple[ConnectedSource, datetime]:
    clock = Func(function="clock_timestamp", output_field=DateTimeField())
    source = ConnectedSource.objects.filter(pk=source_id).annotate(seen_at=clock).first()
    if source is None or source.status == ConnectedSource.Status.DISCONNECTED:
        raise SourceBroken(SOURCE_DISCONNECTED)
    if source.status != ConnectedSource.Status.ACTIVE:
        invalid = (source.status_message or "").startswith(INVALID)
        raise SourceBroken(REFRESH_TOKEN_INVALID if invalid else SOURCE_NOT_ACTIVE)
    return source, source.seen_at


def _is_good(source: ConnectedSource, now: datetime) -> bool:
    if source.token_expires_at is None:
        return False
    return source.token_expires_at - now > timedelta(seconds=settings.TOKEN_REFRESH_SKEW_SECONDS)


def _is_leased(source: ConnectedSource, now: datetime) -> bool:
    return source.refresh_lease_until is not None and source.refresh_lease_until > now


def _elsewhere() -> Wait:
    return Wait(PATIENCE_SECONDS, TOKEN_BEING_REFRESHED)


def _lease(source_id: UUID) -> RefreshLease | None:
    """Take the right to refresh, in a short transaction; None when another has it or has just refreshed."""
    params: dict[str, Any] = {"id": source_id, "lease": uuid4(), "skew": settings.TOKEN_REFRESH_SKEW_SECONDS}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtext('refresh:' || %s))", [str(source_id)])
        if not cursor.fetchone()[0]:
            return None
        cursor.execute(LEASE, params)
        if (row := cursor.fetchone()) is None:
            return None
        leased = RefreshLease(params["lease"], ConnectedSource.objects.get(pk=source_id), row[0])
    failpoints.failpoint("refresh:leased")
    return leased


def _refreshed(leased: RefreshLease) -> str | None:
    """Return the new access token; None when somebody else has changed the source's tokens in the meantime."""
    try:
        granted = _granted(leased.source)
        failpoints.failpoint("refresh:answered")
        return _land(leased, granted)
    except GrantRefused as refused:
        if _guarded(BREAK, leased, message=f"{INVALID}: {refused.code}"):
            log.warning("Source %s is in error: its refresh token is refused, %s.", leased.source.pk, refused.code)
            raise SourceBroken(REFRESH_TOKEN_INVALID) from None
        return None
    except Exception:
        with connection.cursor() as cursor:
            cursor.execute(RELEASE, {"id": leased.source.pk, "lease": leased.lease})
        raise


def _granted(source: ConnectedSource) -> TokenGrant:
    """Ask with the token in use, and with the newest others only when it is refused.

    An answer that was lost may have brought another: the provider takes the old one again (VENDORS §7), or a crash has
    left the new one in the vault without its being in use.
    """
    if not token_endpoint.is_configured(source.provider):
        log.error("Provider %s is not configured, but tenants have connected it.", source.provider)
        raise Wait(token_endpoint.CLIENT_REFUSED_SECONDS, PROVIDER_NOT_CONFIGURED)
    current, said = source.refresh_token_vault_id, ""
    for vault_id in [*([current] if current else []), *token_vault.spare_refresh_tokens(source, most=SPARES)]:
        try:
            token = token_vault.read_token(vault_id, source)
            tokens = token_endpoint.refresh_tokens(source.provider, token)
        except (GrantRefused, Permanent) as refused:
            if isinstance(refused, Permanent) and refused.code != token_vault.TOKEN_MISPLACED:
                raise
            said = said or refused.code
            continue
        kept = tokens.refresh or token
        return TokenGrant(tokens, "" if vault_id == current and kept == token else kept)
    raise GrantRefused(said or "missing")


def _land(leased: RefreshLease, granted: TokenGrant) -> str | None:
    """Store what is new, swing the source over in one statement, and let go of the old, in that order."""
    source = leased.source
    with transaction.atomic():
        # A disconnect forgets every token: what comes after it is not kept.
        if not ConnectedSource.objects.filter(pk=source.pk, status="active").select_for_update(no_key=True).exists():
            return None
        access = token_vault.store_token(source, VaultToken.Kind.ACCESS, granted.tokens.access)
        kept = source.refresh_token_vault_id
        refresh = token_vault.store_token(source, VaultToken.Kind.REFRESH, granted.refresh) if granted.refresh else kept
    failpoints.failpoint("refresh:stored")
    used = {"access": access, "refresh": refresh, "asked": leased.asked, "seconds": granted.tokens.seconds}
    if not _guarded(SWING, leased, **used):
        return None
    failpoints.failpoint("refresh:swung")
    token_vault.orphan_replaced_tokens(source.pk)
    return granted.tokens.access


def _guarded(sql: str, leased: RefreshLease, **params: Any) -> bool:
    """Run a statement that changes nothing when the lease is over or the tokens are others."""
    with connection.cursor() as cursor:
        cursor.execute(sql, leased.params | params)
        return bool(cursor.rowcount)
