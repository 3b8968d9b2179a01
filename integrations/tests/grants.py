"""Sources with tokens of the fake OAuth server, and the outcome of their refresh."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.utils import timezone

from integrations.models import ConnectedSource
from integrations.oauth import token_refresh, token_vault
from integrations.oauth.token_refresh import SourceBroken
from jobs.outcomes import Permanent, Retryable, Wait
from testing.fakes.oauth import OAuthServer
from testing.personas import Person

PROVIDERS = ("hubspot", "google_drive", "quickbooks", "gmail")
TABLES = "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname !~ '^(pg_|information_)'"


def use_fake_oauth(settings: Any, oauth: OAuthServer) -> None:
    """Let every provider's OAuth be the fake's."""
    settings.CONNECTORS = {
        provider: {**settings.CONNECTORS[provider], **oauth.settings_for(provider)} for provider in PROVIDERS
    }
    settings.INTEGRATIONS_USE_FIXTURES = False


def connect_source(person: Person, provider: str, oauth: OAuthServer, *, seconds: float = -1) -> ConnectedSource:
    """Make a source whose access token ends in ``seconds``."""
    source = ConnectedSource.objects.create(user_id=person.id, provider=provider, account="1001")
    access, refresh = oauth.issue_tokens(provider)
    source.access_token_vault_id = token_vault.store_token(source, "access", access)
    source.refresh_token_vault_id = token_vault.store_token(source, "refresh", refresh)
    source.token_expires_at = timezone.now() + timedelta(seconds=seconds)
    source.save()
    return source


def refresh_token(source: ConnectedSource) -> str:
    source.refresh_from_db()
    assert source.refresh_token_vault_id
    return token_vault.read_token(source.refresh_token_vault_id, source)


def database_dump() -> str:
    """Return every row of every table, as a dump would hold it: bytes in hexadecimal."""
    with connection.cursor() as cursor:
        cursor.execute(TABLES)
        tables = [name for (name,) in cursor.fetchall()]
        cursor.execute(" UNION ALL ".join(f"SELECT t::text FROM {name} t" for name in tables))
        return "\n".join(row for (row,) in cursor.fetchall())


def access_token(source_id: UUID) -> str:
    return token_refresh.fresh_token(source_id)[1]


def refresh_outcome(source_id: UUID) -> str:
    """Return how asking for a token ends, by the name of what is raised."""
    try:
        token_refresh.fresh_token(source_id)
    except (Retryable, Wait, SourceBroken, Permanent) as outcome:
        return type(outcome).__name__
    return "fresh"


def fault_name(kind: object) -> str:
    """Return what a fault is called in a test's name."""
    return str(getattr(kind, "name", kind))
