"""Letting go of a tenant's account: nothing is fetched, kept or found any more."""

from __future__ import annotations

import logging
from enum import StrEnum

from django.db import connection, transaction
from django.db.models import Q

from accounts.audit import log as auditing
from accounts.models import User
from integrations.models import ConnectedSource, IngestionJob
from integrations.oauth import token_endpoint, token_vault
from integrations.oauth.provider_config import SHARED_GRANTS
from integrations.oauth.token_endpoint import GrantRefused
from integrations.sync import sync_jobs
from jobs.outcomes import StageFailure, Wait

log = logging.getLogger("accessa.integrations")

# The account's name is given up as well: the same account may be connected anew while these rows are being removed.
LET_GO = """
UPDATE connected_sources SET status = 'disconnected', status_message = NULL, account = 'disconnected:' || id,
    access_token_vault_id = NULL, refresh_token_vault_id = NULL, token_expires_at = NULL, refresh_lease = NULL,
    refresh_lease_until = NULL, cursor = '{}', capabilities = '{}', scopes = '', updated_at = clock_timestamp()
WHERE id = %s AND status <> 'disconnected'
"""


class GrantOutcome(StrEnum):
    """What became of the access that the provider had granted."""

    REVOKED = "given_back"
    SHARED = "shared"  # it stays: another source lives by it
    NOT_REVOKED = "untold"  # the provider could not be told, so it stays until its owner ends it there


def disconnect_source(source: ConnectedSource, *, by: User | None, reason: str = "") -> GrantOutcome:
    """Stop, forget and have removed what a source has brought; then give its grant back. Call it outside transactions.

    Return what became of the grant. The tenant needs no ``reason``; staff (``by`` None: the command line) does, and
    is audited: ``Refused`` REASON_REQUIRED. A second call changes nothing.
    """
    token, account = _refresh_token(source), source.account
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(LET_GO, [source.pk])
            if not cursor.rowcount:
                return GrantOutcome.REVOKED
        token_vault.delete_tokens(source.pk)
        sync_jobs.start_sync(source, IngestionJob.Kind.FORGET, by=str(by.pk) if by else auditing.COMMAND_LINE_ACTOR)
        if by is None or by.pk != source.user_id:
            _audit(source, by, reason)
    source.refresh_from_db()
    # Asked once this one is gone: of the last two, let go of at once, one at least sees that it was the last.
    if token != "" and is_grant_shared(source, account):
        return GrantOutcome.SHARED
    return GrantOutcome.REVOKED if token == "" or (token and _revoked(source, token)) else GrantOutcome.NOT_REVOKED


def _refresh_token(source: ConnectedSource) -> str | None:
    """Return what the grant is given back by; "" where there is none, None where the vault does not open it."""
    fresh = ConnectedSource.objects.filter(pk=source.pk).first()
    if fresh is None or fresh.refresh_token_vault_id is None:
        return ""
    try:
        return token_vault.read_token(fresh.refresh_token_vault_id, fresh)
    except (StageFailure, token_vault.UnknownVaultKey) as failure:
        log.warning("Source %s: its token cannot be given back: %s.", source.pk, failure.code)
        return None


def is_grant_shared(source: ConnectedSource, account: str) -> bool:
    """Tell whether giving the grant back would end another source's: Google takes back all of an account's at once.

    Another tenant's too, who has connected the same account. Of the tenant's own, one whose account is not known may be
    the same.
    """
    if source.provider not in SHARED_GRANTS:
        return False
    same = Q(account=account) if account else Q(pk=None)
    own = Q(user_id=source.user_id) & (same | Q(account="") if account else Q())
    providers = (source.provider, *SHARED_GRANTS[source.provider])
    others = ConnectedSource.objects.filter(own | same, provider__in=providers, status=ConnectedSource.Status.ACTIVE)
    return others.exclude(pk=source.pk).exists()


def _audit(source: ConnectedSource, by: User | None, reason: str) -> None:
    auditing.record_action(
        by=by,
        action="sources.disconnect",
        reason=reason,
        object_type="connected_source",
        object_id=source.pk,
        tenant_id=source.user_id,
        provider=source.provider,
    )


def _revoked(source: ConnectedSource, token: str) -> bool:
    """Give the grant back, once: a provider that is away is not waited for."""
    if not token_endpoint.is_configured(source.provider):
        return False
    try:
        token_endpoint.revoke_grant(source.provider, token)
    except GrantRefused:  # gone already
        return True
    except (StageFailure, Wait) as failure:
        code = failure.code if isinstance(failure, StageFailure) else failure.reason
        log.warning("Source %s: %s was not told that it is disconnected: %s.", source.pk, source.provider, code)
        return False
    return True
