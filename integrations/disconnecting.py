"""Letting go of a tenant's account: nothing is fetched, kept or found any more."""

from __future__ import annotations

import logging

from django.db import connection, transaction

from auditing import services as auditing
from integrations import syncs, vault
from integrations.models import ConnectedSource, IngestionJob
from integrations.oauth import endpoints
from integrations.oauth.dialects import SHARING
from integrations.oauth.endpoints import GrantRefused
from jobs.outcomes import Postponed, StageFailure
from tenancy.models import User

log = logging.getLogger("accessa.integrations")

# The account's name is given up as well: the same account may be connected anew while these rows are being removed.
LET_GO = """
UPDATE connected_sources SET status = 'disconnected', status_message = NULL, account = 'disconnected:' || id,
    access_token_vault_id = NULL, refresh_token_vault_id = NULL, token_expires_at = NULL, refresh_lease = NULL,
    refresh_lease_until = NULL, cursor = '{}', capabilities = '{}', scopes = '', updated_at = clock_timestamp()
WHERE id = %s AND status <> 'disconnected'
"""


def disconnect(source: ConnectedSource, *, by: User | None, reason: str = "") -> bool:
    """Stop, forget and have removed what a source has brought; then give its grant back. Call it outside transactions.

    Return whether the provider knows. The tenant needs no ``reason``; staff (``by`` None: the command line) does, and
    is audited: ``Refused`` REASON_REQUIRED. A second call changes nothing.
    """
    token, shared = _refresh_token(source), _is_shared(source)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(LET_GO, [source.pk])
            if not cursor.rowcount:
                return True
        vault.forget(source.pk)
        syncs.start(source, IngestionJob.Kind.FORGET, by=str(by.pk) if by else auditing.COMMAND_LINE)
        if by is None or by.pk != source.user_id:
            _audit(source, by, reason)
    source.refresh_from_db()
    if shared or token == "":
        return True
    return token is not None and _revoked(source, token)


def _refresh_token(source: ConnectedSource) -> str | None:
    """Return what the grant is given back by; "" where there is none, None where the vault does not open it."""
    fresh = ConnectedSource.objects.filter(pk=source.pk).first()
    if fresh is None or fresh.refresh_token_vault_id is None:
        return ""
    try:
        return vault.read(fresh.refresh_token_vault_id, fresh)
    except (StageFailure, vault.KeyUnknown) as failure:
        log.warning("Source %s: its token cannot be given back: %s.", source.pk, failure.code)
        return None


def _is_shared(source: ConnectedSource) -> bool:
    """Tell whether giving the grant back would end another source's: Google takes it back for both of its two."""
    others = ConnectedSource.objects.filter(
        user_id=source.user_id, provider__in=SHARING.get(source.provider, ()), status=ConnectedSource.Status.ACTIVE
    )
    return any(not source.account or other.account in ("", source.account) for other in others)


def _audit(source: ConnectedSource, by: User | None, reason: str) -> None:
    auditing.record(
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
    if not endpoints.configured(source.provider):
        return False
    try:
        endpoints.revoke(source.provider, token)
    except GrantRefused:  # gone already
        return True
    except (StageFailure, Postponed) as failure:
        code = failure.code if isinstance(failure, StageFailure) else failure.wait.reason
        log.warning("Source %s: %s was not told that it is disconnected: %s.", source.pk, source.provider, code)
        return False
    return True
