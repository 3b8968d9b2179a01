"""Integrity checks of rows written by connectors: each corrupted row is reported."""

import pytest
from django.db import connection

from accessa.integrity import violation_queries
from accessa.integrity.violations import find_violations
from integrations.models import ClientIntelligence, ConnectedSource, SourceDocument
from integrations.oauth import token_vault
from integrations.sync import lifecycle
from testing.personas import Person

pytestmark = pytest.mark.django_db

VECTOR = "array_fill(0.1::real, ARRAY[1536])::vector"


def sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.fixture(autouse=True)
def _synced(ana: Person) -> None:
    """Create a source with its tokens, a company with its client, a record that is gone, and a sync under way."""
    source = ConnectedSource.objects.create(user_id=ana.id, provider="hubspot")
    source.access_token_vault_id = token_vault.store_token(source, "access", "a")
    source.refresh_token_vault_id = token_vault.store_token(source, "refresh", "r")
    source.save()
    for number, text in (("1", "Acme"), ("2", "")):
        SourceDocument.objects.create(
            user_id=ana.id, source=source, external_id=f"company:{number}", document_type="hubspot.company",
            raw_payload={}, text=text,
        )  # fmt: skip
    ClientIntelligence.objects.create(
        user_id=ana.id, source=source, external_id="company:1", client_name="Acme", text="Acme"
    )
    ClientIntelligence.objects.create(user_id=ana.id, client_name="Ana's own")
    sql("UPDATE source_documents SET deleted_at = now() WHERE external_id = 'company:2'")
    for table in ("source_documents", "client_intelligence"):
        sql(
            f"UPDATE {table} SET embedding = {VECTOR}, embedding_model = 'm@1',"
            " embedding_text_sha256 = sha256(convert_to(text, 'UTF8')) WHERE external_id = 'company:1'"
        )
    lifecycle.start_sync(source, "full_sync", by="test")


def kinds() -> set[str]:
    return {finding.kind for finding in find_violations(deep=True)}


ROT = {
    "UPDATE source_documents SET user_id = gen_random_uuid()": "record",
    "UPDATE client_intelligence SET user_id = gen_random_uuid() WHERE source_id IS NOT NULL": "client",
    "UPDATE ingestion_jobs SET user_id = gen_random_uuid()": "sync",
    "UPDATE vault_tokens SET user_id = gen_random_uuid()": "token",
    "UPDATE source_documents SET text = 'x' WHERE deleted_at IS NOT NULL": "gone record",
    "SET CONSTRAINTS ALL IMMEDIATE; ALTER TABLE source_documents DROP CONSTRAINT source_document_embedded;"
    " UPDATE source_documents SET embedding_model = NULL": "vector of a record",
    "SET CONSTRAINTS ALL IMMEDIATE; ALTER TABLE client_intelligence DROP CONSTRAINT client_intelligence_embedded;"
    " UPDATE client_intelligence SET embedding_text_sha256 = NULL": "vector of a client",
    "UPDATE source_documents SET deleted_at = now(), text = '', raw_payload = '{}', embedding = NULL,"
    " embedding_model = NULL, embedding_text_sha256 = NULL": "client without a record",
    "DELETE FROM vault_tokens WHERE kind = 'refresh'": "source without its token",
    "DELETE FROM pgmq.q_ingestion_queue": "sync without a page",
    "UPDATE connected_sources SET status = 'disconnected'; UPDATE ingestion_jobs SET status = 'failed'":
        "source that stays",
    "UPDATE source_documents SET text = text || '!' WHERE text <> ''": "text of a record",
    "UPDATE client_intelligence SET text = text || '!' WHERE text <> ''": "text of a client",
}  # fmt: skip


def test_a_sync_under_way_is_well() -> None:
    assert list(find_violations(deep=True)) == []


@pytest.mark.parametrize("statement", ROT, ids=ROT.values())
def test_a_row_that_went_bad_is_named(statement: str) -> None:
    sql(statement)

    assert kinds() == {ROT[statement]}


def test_every_question_has_its_row_above() -> None:
    assert {*violation_queries.CONNECTORS, *violation_queries.CONNECTOR_TEXTS} == set(ROT.values())
