"""Doctor's check of the connectors: queue functions, overdue pages, the token vault."""

from typing import Any

import pytest
from django.db import connection

from accessa.doctor.findings import Level
from accessa.tests.doctor_fixtures import reports, run_findings, temporary_sql
from integrations.models import ConnectedSource
from integrations.oauth import token_vault
from integrations.sync import lifecycle
from testing.personas import Person

pytestmark = pytest.mark.django_db(transaction=True)

READ = "public.ingestion_read(text, integer, integer)"


def connected(person: Person, **said: Any) -> ConnectedSource:
    source = ConnectedSource.objects.create(user_id=person.id, provider="hubspot", **said)
    source.refresh_token_vault_id = token_vault.store_token(source, "refresh", "r")
    source.save()
    return source


def test_a_working_queue_and_readable_tokens_pass(ana: Person) -> None:
    connected(ana)
    connected(ana, account="2", status="error", status_message="refresh_token_invalid: invalid_grant")

    assert [level for level, *_ in run_findings("connectors")] == [Level.OK]
    assert "1 source waits for its tenant to reconnect" in run_findings("connectors")[0][1]


@pytest.mark.parametrize(
    ("do", "undo", "says", "remedy"),
    [
        (f"ALTER FUNCTION {READ} RENAME TO hidden", "ALTER FUNCTION hidden(text, integer, integer) RENAME TO"
         " ingestion_read", "is missing", "migrate"),
        (f"GRANT EXECUTE ON FUNCTION {READ} TO PUBLIC", f"REVOKE EXECUTE ON FUNCTION {READ} FROM PUBLIC",
         "Tenants may call", "REVOKE EXECUTE"),
    ],
)  # fmt: skip
def test_a_queue_that_is_not_as_it_was_made_is_found(do: str, undo: str, says: str, remedy: str, db: None) -> None:
    with temporary_sql(do, undo):
        assert reports("connectors", says, remedy)


def test_unclaimed_pages_are_reported(ana: Person) -> None:
    lifecycle.start_sync(connected(ana), "full_sync", by="test")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgmq.q_ingestion_queue SET vt = vt - interval '1 hour'")

    assert reports("connectors", "1 pages of syncs are due", "INGESTION_WORKERS", level=Level.WARNING)


def test_tokens_with_a_missing_vault_key_are_reported(ana: Person, settings: Any) -> None:
    connected(ana)
    settings.INTEGRATIONS_VAULT_KEYS = ["another key, which nothing was written with"]

    assert reports("connectors", "VAULT_KEY_UNKNOWN", "INTEGRATIONS_VAULT_KEYS")
