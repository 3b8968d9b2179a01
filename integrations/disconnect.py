"""Disconnect of a tenant's source: revocation of its grant, deletion of its tokens and, in batches, of its records."""

import logging
from enum import StrEnum

from django.db import connection, transaction
from django.db.models import Q

from accounts.audit.log import COMMAND_LINE_ACTOR
from accounts.models import User
from integrations.models import ClientIntelligence, ConnectedSource, IngestionJob, VaultToken
from integrations.oauth import token_endpoint, token_vault
from integrations.oauth.token_endpoint import SHARED_GRANTS, GrantRefused
from integrations.records import orphaned_imports
from integrations.records.prepared_sql import execute
from integrations.sync import lifecycle, pgmq
from integrations.sync.lifecycle import PageCounts
from integrations.sync.pgmq import ARCHIVE, Message
from integrations.transports.responses import source_vendor
from jobs.outcomes import StageFailure, Wait
from vendors import calls

log = logging.getLogger("accessa.integrations")

PURGED_AT_ONCE = 1_000

# The account's name is cleared as well: the same account may be connected again while these rows are being deleted.
DISCONNECT = """
UPDATE connected_sources SET status = 'disconnected', status_message = NULL, account = 'disconnected:' || id,
    access_token_vault_id = NULL, refresh_token_vault_id = NULL, token_expires_at = NULL, refresh_lease = NULL,
    refresh_lease_until = NULL, cursor = '{}', capabilities = '{}', scopes = '', updated_at = clock_timestamp()
WHERE id = %s AND status <> 'disconnected'
"""
PURGE = """
    DELETE FROM source_documents WHERE id IN (
        SELECT id FROM source_documents WHERE source_id = %(source)s ORDER BY external_id LIMIT %(most)s)
    RETURNING id"""
# Its archived messages can never be replayed.
DELETE_ARCHIVED = f"DELETE FROM {ARCHIVE} WHERE message ->> 'source_id' = %(source)s"


class GrantOutcome(StrEnum):
    """The state of the provider's grant after a disconnect."""

    REVOKED = "given_back"
    SHARED = "shared"  # it stays: another source depends on it
    NOT_REVOKED = "untold"  # the provider could not be reached, so it stays until its owner ends it there


def disconnect_source(source: ConnectedSource, *, by: User | None, reason: str = "") -> GrantOutcome:
    """Disconnect a source, delete its tokens, start its purge, and then revoke its grant. Call it in no transaction.

    The tenant needs no ``reason``; staff (``by`` None: the command line) does, and is audited: ``ApiError``
    REASON_REQUIRED. A second call changes nothing.
    """
    token, account = _refresh_token(source), source.account
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(DISCONNECT, [source.pk])
            if not cursor.rowcount:
                return GrantOutcome.REVOKED
        VaultToken.objects.filter(source_id=source.pk).delete()
        lifecycle.start_sync(source, IngestionJob.Kind.FORGET, by=str(by.pk) if by else COMMAND_LINE_ACTOR)
        if by is None or by.pk != source.user_id:
            lifecycle.record_source_action(source, "sources.disconnect", by=by, reason=reason, provider=source.provider)
    source.refresh_from_db()
    # Checked after the commit: of the last two sources, disconnected at once, one at least sees that it was the last.
    if token != "" and is_grant_shared(source, account):
        return GrantOutcome.SHARED
    if token == "" or (token and _revoke(source, token)):
        return GrantOutcome.REVOKED
    return GrantOutcome.NOT_REVOKED


def _refresh_token(source: ConnectedSource) -> str | None:
    """Return the token that revokes the grant; "" without one, None where the vault cannot decrypt it."""
    current = ConnectedSource.objects.filter(pk=source.pk).first()
    if current is None or current.refresh_token_vault_id is None:
        return ""
    try:
        return token_vault.read_token(current.refresh_token_vault_id, current)
    except (StageFailure, token_vault.UnknownVaultKey) as failure:
        log.warning("Source %s: its grant cannot be revoked: %s.", source.pk, failure.code)
        return None


def is_grant_shared(source: ConnectedSource, account: str) -> bool:
    """Return whether revoking the grant would end another source's: Google revokes all of an account's at once.

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


def _revoke(source: ConnectedSource, token: str) -> bool:
    """Revoke the grant with one call: an unavailable provider is not waited for."""
    if not token_endpoint.is_configured(source.provider):
        return False
    try:
        token_endpoint.revoke_grant(source.provider, token)
    except GrantRefused:  # gone already
        return True
    except (StageFailure, Wait) as failure:
        code = failure.code if isinstance(failure, StageFailure) else failure.reason
        log.warning("Source %s: %s has not revoked its grant: %s.", source.pk, source.provider, code)
        return False
    return True


def purge_batch(message: Message, job: IngestionJob) -> None:
    """Delete the next batch of a disconnected source's records; after the last one, the source and all else of it."""
    source = job.source
    with pgmq.message_lease(message):
        rows = execute(PURGE, {"source": source.pk, "most": PURGED_AT_ONCE})
        if not rows:
            ClientIntelligence.objects.filter(source=source).delete()
            VaultToken.objects.filter(source_id=source.pk).delete()
            IngestionJob.objects.filter(source=source).delete()
            ConnectedSource.objects.filter(pk=source.pk).delete()
            execute(DELETE_ARCHIVED, {"source": str(source.pk)})
            calls.delete_vendor_state(source_vendor(source))
    orphaned_imports.withdraw_orphans(source.pk)
    if rows:
        lifecycle.close_page(message, job, PageCounts(deleted=len(rows)), next_body=message.body.next_page(None))
