"""Token refresh under a refresh lease: a token is refreshed once, however many workers need it (spec 002 §2)."""

import logging
import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import connection, transaction
from django.db.models import DateTimeField, Func

from accounts.errors import ErrorCode
from integrations import error_codes
from integrations.models import ConnectedSource, VaultToken
from integrations.oauth import token_endpoint, token_vault
from integrations.oauth.token_endpoint import GrantRefused, TokenResponse
from jobs import failpoints
from jobs.outcomes import Permanent, Wait

log = logging.getLogger("accessa.integrations")

FIXTURE_TOKEN = "recorded"  # noqa: S105  the token of fixture mode, which is never read
LEASE_SECONDS = 60
SPARES = 2  # older tokens that are tried once the one in use is refused
PATIENCE_SECONDS, POLL_SECONDS = 5.0, 0.05

# clock_timestamp(), not now(): the token is compared with the time at which it is going to be used.
LEASE = f"""
UPDATE connected_sources SET refresh_lease = %(lease)s,
    refresh_lease_until = clock_timestamp() + make_interval(secs => {LEASE_SECONDS})
WHERE id = %(id)s AND status = 'active' AND (token_expires_at IS NULL OR access_token_vault_id IS NULL
      OR token_expires_at <= clock_timestamp() + make_interval(secs => %(skew)s))
  AND (refresh_lease_until IS NULL OR refresh_lease_until <= clock_timestamp())
RETURNING clock_timestamp()
"""
_HELD = """WHERE id = %(id)s AND status = 'active' AND refresh_lease = %(lease)s
  AND token_expires_at IS NOT DISTINCT FROM %(previous)s::timestamptz"""
_RELEASE = "refresh_lease = NULL, refresh_lease_until = NULL, updated_at = clock_timestamp()"
SWAP_TOKENS = f"""
UPDATE connected_sources SET access_token_vault_id = %(access)s, refresh_token_vault_id = %(refresh)s,
    token_expires_at = %(leased_at)s::timestamptz + make_interval(secs => %(seconds)s), {_RELEASE}
{_HELD}
"""
MARK_INVALID = f"UPDATE connected_sources SET status = 'error', status_message = %(message)s, {_RELEASE} {_HELD}"
RELEASE = """
UPDATE connected_sources SET refresh_lease = NULL, refresh_lease_until = NULL
WHERE id = %(id)s AND refresh_lease = %(lease)s
"""
# A refresh under way replaces the token anyhow, and its guard must find the expiry that it has read.
EXPIRE = """
UPDATE connected_sources SET token_expires_at = NULL, updated_at = clock_timestamp()
WHERE id = %(id)s AND token_expires_at IS NOT DISTINCT FROM %(previous)s::timestamptz
  AND (refresh_lease_until IS NULL OR refresh_lease_until <= clock_timestamp())
"""


class SourceBroken(Exception):
    """Nothing can be fetched from the source until its tenant acts. ``code`` is one of our error codes."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class RefreshLease:
    """The right to refresh a source's tokens: the source as it was, and when that was by the database's clock."""

    id: UUID
    source: ConnectedSource
    leased_at: datetime

    def update(self, sql: str, **params: Any) -> bool:
        """Run an update that changes nothing when the lease is over or the tokens are others; return if it did."""
        lease = {"id": self.source.pk, "lease": self.id, "previous": self.source.token_expires_at}
        with connection.cursor() as cursor:
            cursor.execute(sql, lease | params)
            return bool(cursor.rowcount)


def fresh_token(source_id: UUID) -> tuple[ConnectedSource, str]:
    """Return the source and an access token valid for TOKEN_REFRESH_SKEW_SECONDS at least, refreshed if necessary.

    Call it outside of transactions. Raises ``SourceBroken`` (the source's new status is committed), ``Retryable`` and
    ``Wait`` (the provider, or another worker whose refresh of these tokens did not end within seconds).
    """
    until, waited = time.monotonic() + PATIENCE_SECONDS, False
    while True:
        source, now = _load_source(source_id)
        if settings.INTEGRATIONS_USE_FIXTURES:
            return source, FIXTURE_TOKEN
        expires_at, skew = source.token_expires_at, timedelta(seconds=settings.TOKEN_REFRESH_SKEW_SECONDS)
        if source.access_token_vault_id and expires_at is not None and expires_at - now > skew:
            return source, token_vault.read_token(source.access_token_vault_id, source)
        if source.refresh_lease_until is not None and source.refresh_lease_until > now:
            waited = True
        elif waited:  # the other worker has failed: the crowd that waited for it must not call one after the other
            raise Wait(PATIENCE_SECONDS, error_codes.TOKEN_BEING_REFRESHED)
        elif (lease := _take_lease(source_id)) and (token := _refresh(lease)):
            return _load_source(source_id)[0], token
        if time.monotonic() > until:
            raise Wait(PATIENCE_SECONDS, error_codes.TOKEN_BEING_REFRESHED)
        time.sleep(POLL_SECONDS)


def expire_token(source_id: UUID, token_expires_at: datetime | None) -> None:
    """Mark the access token with this expiry as refused by the provider: it is refreshed next."""
    with connection.cursor() as cursor:
        cursor.execute(EXPIRE, {"id": source_id, "previous": token_expires_at})


def _load_source(source_id: UUID) -> tuple[ConnectedSource, datetime]:
    clock = Func(function="clock_timestamp", output_field=DateTimeField())
    source = ConnectedSource.objects.filter(pk=source_id).annotate(loaded_at=clock).first()
    if source is None or source.status == ConnectedSource.Status.DISCONNECTED:
        raise SourceBroken(error_codes.SOURCE_DISCONNECTED)
    if source.status != ConnectedSource.Status.ACTIVE:
        is_invalid = (source.status_message or "").startswith(error_codes.REFRESH_TOKEN_INVALID_STATUS)
        raise SourceBroken(error_codes.REFRESH_TOKEN_INVALID if is_invalid else error_codes.SOURCE_NOT_ACTIVE)
    return source, source.loaded_at


def _take_lease(source_id: UUID) -> RefreshLease | None:
    """Take the refresh lease, in a short transaction; None when another worker has it or has just refreshed."""
    params: dict[str, Any] = {"id": source_id, "lease": uuid4(), "skew": settings.TOKEN_REFRESH_SKEW_SECONDS}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtext('refresh:' || %s))", [str(source_id)])
        if not cursor.fetchone()[0]:
            return None
        cursor.execute(LEASE, params)
        if (row := cursor.fetchone()) is None:
            return None
        lease = RefreshLease(params["lease"], ConnectedSource.objects.get(pk=source_id), row[0])
    failpoints.failpoint("refresh:leased")
    return lease


def _refresh(lease: RefreshLease) -> str | None:
    """Return the new access token; None when another worker has changed the source's tokens in the meantime."""
    try:
        tokens = _request_tokens(lease.source)
        failpoints.failpoint("refresh:answered")
        return _save_tokens(lease, tokens)
    except GrantRefused as refused:
        if lease.update(MARK_INVALID, message=f"{error_codes.REFRESH_TOKEN_INVALID_STATUS}: {refused.code}"):
            log.warning("Source %s is in error: its refresh token is refused, %s.", lease.source.pk, refused.code)
            raise SourceBroken(error_codes.REFRESH_TOKEN_INVALID) from None
        return None
    except Exception:
        lease.update(RELEASE)
        raise


def _request_tokens(source: ConnectedSource) -> TokenResponse:
    """Request tokens with the refresh token in use, and with the newest spare ones only when it is refused.

    ``refresh`` of the response is the refresh token to store, or "" when it is the one in use.
    A lost response may have brought another one: the provider accepts the old one again (VENDORS §7), or a crash has
    left the new one in the vault, not in use.
    """
    if not token_endpoint.is_configured(source.provider):
        log.error("Provider %s is not configured, but tenants have connected it.", source.provider)
        raise Wait(token_endpoint.CLIENT_REFUSED_SECONDS, error_codes.PROVIDER_NOT_CONFIGURED)
    current, first_code = source.refresh_token_vault_id, ""
    for vault_id in [*([current] if current else []), *token_vault.spare_refresh_tokens(source, most=SPARES)]:
        try:
            token = token_vault.read_token(vault_id, source)
            tokens = token_endpoint.refresh_tokens(source.provider, token)
        except (GrantRefused, Permanent) as refused:
            if isinstance(refused, Permanent) and refused.code != error_codes.VAULT_TOKEN_MISPLACED:
                raise
            first_code = first_code or refused.code
            continue
        refresh = tokens.refresh or token
        return replace(tokens, refresh="" if vault_id == current and refresh == token else refresh)
    raise GrantRefused(first_code or "missing")


def _save_tokens(lease: RefreshLease, tokens: TokenResponse) -> str | None:
    """Store the new tokens, point the source to them in one statement, and orphan the old ones, in that order."""
    source = lease.source
    with transaction.atomic():
        # A disconnect deletes every token: tokens that arrive after it are not stored.
        if not ConnectedSource.objects.filter(pk=source.pk, status="active").select_for_update(no_key=True).exists():
            return None
        access, refresh = token_vault.store_token(source, VaultToken.Kind.ACCESS, tokens.access), None
        if tokens.refresh:
            refresh = token_vault.store_token(source, VaultToken.Kind.REFRESH, tokens.refresh)
    failpoints.failpoint("refresh:stored")
    refresh = refresh or source.refresh_token_vault_id
    times = {"leased_at": lease.leased_at, "seconds": tokens.seconds}
    if not lease.update(SWAP_TOKENS, access=access, refresh=refresh, **times):
        return None
    failpoints.failpoint("refresh:swung")
    token_vault.orphan_replaced_tokens(source.pk)
    return tokens.access
