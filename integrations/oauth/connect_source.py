"""How tokens of a consent become a source that is fetched from."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import connection, transaction

from accounts.errors import ApiError
from integrations.models import ConnectedSource, IngestionJob, VaultToken
from integrations.oauth import token_vault
from integrations.oauth.token_endpoint import TokenResponse
from integrations.sync import sync_jobs

CREATE = """
INSERT INTO connected_sources (id, user_id, provider, account) VALUES (%s, %s, %s, %s)
ON CONFLICT (user_id, provider, account) DO NOTHING
"""
# A refresh that is under way finds its lease gone, and what it brings does not replace what the tenant just granted.
REVIVE = """
UPDATE connected_sources SET status = 'active', status_message = NULL, transport = %(transport)s, scopes = %(scopes)s,
    capabilities = '{}', access_token_vault_id = %(access)s, refresh_token_vault_id = %(refresh)s,
    token_expires_at = clock_timestamp() + make_interval(secs => %(seconds)s),
    refresh_lease = NULL, refresh_lease_until = NULL, updated_at = clock_timestamp()
WHERE id = %(id)s
"""


def connect_account(user_id: UUID, provider: str, account: str, tokens: TokenResponse | None) -> ConnectedSource:
    """Make the account's source, or revive the one that it has, and start a full sync. ``tokens`` None: recorded."""
    with transaction.atomic():
        source = _locked(user_id, provider, account)
        params: dict[str, Any] = {
            "id": source.pk,
            "transport": "rest",
            "scopes": "",
            "access": None,
            "refresh": None,
            "seconds": None,
        }
        if tokens:
            params |= {
                "transport": settings.CONNECTORS[provider]["transport"],
                "scopes": " ".join(sorted(tokens.scopes or settings.CONNECTORS[provider]["scopes"].split())),
                "access": token_vault.store_token(source, VaultToken.Kind.ACCESS, tokens.access),
                "refresh": token_vault.store_token(source, VaultToken.Kind.REFRESH, tokens.refresh),
                "seconds": tokens.seconds,
            }
        with connection.cursor() as cursor:
            cursor.execute(REVIVE, params)
        token_vault.orphan_replaced_tokens(source.pk)
        source.refresh_from_db()
        with suppress(_AlreadySyncing):
            _start(source)
    return source


def _locked(user_id: UUID, provider: str, account: str) -> ConnectedSource:
    with connection.cursor() as cursor:
        cursor.execute(CREATE, [uuid4(), user_id, provider, account])
    sources = ConnectedSource.objects.select_for_update(no_key=True)
    return sources.get(user_id=user_id, provider=provider, account=account)


class _AlreadySyncing(Exception):
    """A sync is under way, and goes on with the new tokens."""


def _start(source: ConnectedSource) -> None:
    try:
        with transaction.atomic():
            sync_jobs.start_sync(source, IngestionJob.Kind.FULL, by=str(source.user_id))
    except ApiError as refused:
        if refused.code != "SYNC_ALREADY_ACTIVE":
            raise
        raise _AlreadySyncing from refused
