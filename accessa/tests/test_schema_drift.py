"""What the database's own catalog says: every column, index and constraint of the specs, every policy, every right."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction
from django.db.utils import IntegrityError, ProgrammingError

from accounts.rls import as_tenant
from documents.models import Document
from jobs.models import UploadJob
from jobs.states import FAILED_STATUSES, STAGE_STATUSES, Stage
from testing.personas import Person, plan_pdf

pytestmark = pytest.mark.django_db

TENANT_TABLES = (
    "documents",
    "upload_jobs",
    "events",
    "document_chunk_buffer",
    "document_chunks",
    "document_vector_buffer",
    "purchases",
    "tenant_budgets",
    "shadow_vectors",
    "document_terms",
    "vector_indexes",
    "connected_sources",
    "ingestion_jobs",
    "source_documents",
    "client_intelligence",
)
SECRET_TABLES = (
    "api_tokens", "users", "rate_windows", "object_removals", "parse_requests", "document_scanned_pages",
    "vendor_rate_limits", "vendor_breakers", "webhook_deliveries", "live_models",
    "campaigns", "campaign_tenants", "audit_entries", "clusters", "vault_tokens", "uploads_in_doubt",
    "laws", "law_versions", "sqs_consumers",
    "metric_rollups", "measurement_runs", "daily_spends", "storage_usage", "vendor_calls",
    "django_session", "django_admin_log", "users_groups", "users_user_permissions", "auth_group", "auth_permission",
)  # fmt: skip


def rows(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def owned_tables() -> list[str]:
    """Every table that has a user_id, whatever app it belongs to."""
    found = rows("""
        SELECT c.relname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE a.attname = 'user_id' AND NOT a.attisdropped AND c.relkind IN ('r', 'p')
          AND c.relnamespace = 'public'::regnamespace""")
    return sorted(name for (name,) in found)


# Tenancy


def test_every_table_with_a_user_id_is_under_a_forced_policy_for_the_client() -> None:
    tables = owned_tables()
    protected = rows("""
        SELECT c.relname FROM pg_class c WHERE c.relrowsecurity AND c.relforcerowsecurity AND EXISTS (
            SELECT 1 FROM pg_policy p
            WHERE p.polrelid = c.oid AND p.polroles = ARRAY['accessa_client'::regrole::oid])""")

    assert set(TENANT_TABLES) <= set(tables)
    assert set(tables) - {name for (name,) in protected} == set()


def test_every_policy_is_for_reading_and_asks_for_the_caller_once_a_query() -> None:
    policies = rows("SELECT tablename, cmd, roles::text, qual FROM pg_policies WHERE schemaname = 'public'")

    assert {(cmd, roles) for _, cmd, roles, _ in policies} == {("SELECT", "{accessa_client}")}
    # `(select auth.uid())` is evaluated once; a bare call would be evaluated for every row.
    assert [table for table, *_, qual in policies if "SELECT auth.uid()" not in qual] == []


def test_user_ids_are_uuids_that_must_be_there() -> None:
    found = rows(
        "SELECT table_name, data_type, is_nullable FROM information_schema.columns"
        " WHERE column_name = 'user_id' AND table_schema = 'public'"
    )

    assert [row for row in found if row[1:] != ("uuid", "NO")] == []


def test_the_roles_are_what_the_design_says() -> None:
    columns = "rolname, rolcanlogin, rolsuper, rolbypassrls, rolcreaterole"
    found = rows(f"SELECT {columns} FROM pg_roles WHERE rolname IN ('accessa_app', 'accessa_client') ORDER BY 1")
    membership = rows("""
        SELECT inherit_option, set_option, admin_option FROM pg_auth_members
        WHERE roleid = 'accessa_client'::regrole AND member = 'accessa_app'::regrole""")

    assert found == [("accessa_app", True, False, True, False), ("accessa_client", False, False, False, False)]
    assert membership == [(False, True, False)]
    assert rows("SELECT current_user::text") == [("accessa_app",)]


def test_the_client_may_read_tenants_tables_and_nothing_else() -> None:
    readable = rows("""
        SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')
        AND has_any_column_privilege('accessa_client', oid, 'SELECT')
        AND relname !~ '^pg_stat_'""")

    assert {name for (name,) in readable} == set(TENANT_TABLES)


def test_the_client_may_write_nowhere() -> None:
    writable = rows("""
        SELECT relname, verb FROM pg_class, unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER']) verb
        WHERE relnamespace IN ('public'::regnamespace, 'auth'::regnamespace) AND relkind IN ('r', 'p', 'v')
          AND has_table_privilege('accessa_client', oid, verb)""")
    creatable = rows("""
        SELECT nspname FROM pg_namespace
        WHERE nspname !~ '^pg_' AND has_schema_privilege('accessa_client', oid, 'CREATE')""")

    assert writable == []
    assert creatable == []


@pytest.mark.parametrize("table", SECRET_TABLES)
def test_the_client_cannot_read_what_is_not_a_tenants(table: str, ana: Person) -> None:
    with pytest.raises(ProgrammingError, match="permission denied"), as_tenant(ana.id):
        rows(f"SELECT 1 FROM {table}")


# Columns: name, type, whether null is allowed. The union of MVP context §4, RFC001 and context 002 §3.

T, U, N, B, J, Z, V = "text", "uuid", "integer", "bigint", "jsonb", "timestamp with time zone", "vector(1536)"
COLUMNS = {
    "documents": f"""document_id {U}!  user_id {U}!  filename {T}!  mime {T}!  bytes_len {B}!  file_sha256 {T}!
        parsed_sha256 {T}  raw_path {T}!  parsed_path {T}  processing_status {T}  created_at {Z}!  updated_at {Z}!""",
    "upload_jobs": f"""job_id {U}!  user_id {U}!  document_id {U}!  stage {T}!  state {T}!  status {T}  retry_count {N}!
        idempotency_key {T}  payload {J}!  last_error {J}  claimed_by {T}  claimed_at {Z}  started_at {Z}
        finished_at {Z}  raw_path {T}!  parsed_path {T}  parsed_sha256 {T}  chunks_version {T}!  embed_model {T}
        embed_version {T}  progress {J}!  created_at {Z}!  updated_at {Z}!
        run_after {Z}  claim_token {U}  lease_until {Z}  correlation_id {U}!  slot smallint  pipeline {T}!""",
    "document_chunk_buffer": f"""chunk_id {U}!  document_id {U}!  chunk_ord {N}!  chunker_name {T}!
        chunker_version {T}!  chunk_sha {T}!  text {T}!  meta {J}  created_at {Z}!  user_id {U}!""",
    "document_chunks": f"""chunk_id {U}!  document_id {U}!  user_id {U}!  chunker_name {T}!  chunker_version {T}!
        chunk_ord {N}!  text {T}!  chunk_sha {T}!  embed_model {T}  embed_version {T}  vector_dim {N}
        embedding {V}  embed_updated_at {Z}  created_at {Z}!  updated_at {Z}!  meta {J}""",
    "document_vector_buffer": f"""buffer_id {U}!  document_id {U}!  user_id {U}!  chunk_id {U}!  embed_model {T}!
        embed_version {T}!  vector_dim {N}!  embedding {V}!  vector_sha {T}!  created_at {Z}!""",
    "events": f"""event_id {U}!  job_id {U}!  document_id {U}!  user_id {U}!  ts {Z}!  type {T}!  severity {T}!
        code {T}!  payload {J}!  correlation_id {U}""",
}  # fmt: skip


def named_columns(table: str) -> list[tuple[str, str, bool]]:
    parts = [part.strip() for part in COLUMNS[table].replace("\n", "  ").split("  ") if part.strip()]
    split = ([*part.rstrip("!").split(" ", 1), part.endswith("!")] for part in parts)
    return [(str(name), str(kind), bool(required)) for name, kind, required in split]


def real_columns(table: str) -> dict[str, tuple[str, bool]]:
    found = rows(
        "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
        table,
    )
    return {name: (kind, required) for name, kind, required in found}


@pytest.mark.parametrize("table", COLUMNS)
def test_a_table_has_every_column_that_the_specs_name(table: str) -> None:
    real = real_columns(table)

    assert {name: real.get(name) for name, *_ in named_columns(table)} == {
        name: (kind, required) for name, kind, required in named_columns(table)
    }


@pytest.mark.parametrize(
    ("table", "column", "default"),
    [
        *[(table, "created_at", "statement_timestamp()") for table in COLUMNS if table != "events"],
        ("events", "ts", "statement_timestamp()"),
        ("events", "event_id", "gen_random_uuid()"),
        ("document_vector_buffer", "buffer_id", "gen_random_uuid()"),
        ("upload_jobs", "retry_count", "0"),
    ],
)
def test_the_database_fills_in_what_the_specs_default(table: str, column: str, default: str) -> None:
    ((found,),) = rows(
        "SELECT lower(column_default) FROM information_schema.columns WHERE table_name = %s AND column_name = %s",
        table, column,
    )  # fmt: skip

    assert default in found


@pytest.mark.parametrize(
    ("name", "definition"),
    [
        ("uq_user_filehash", "UNIQUE documents (user_id, file_sha256)"),
        ("ix_documents_user", "documents (user_id)"),
        ("uq_job_doc_stage_active", "UNIQUE upload_jobs (document_id, stage) WHERE queued working retryable"),
        ("ix_jobs_state", "upload_jobs (state, created_at)"),
        ("idx_upload_jobs_status", "upload_jobs (status, created_at)"),
        ("idx_upload_jobs_document", "upload_jobs (document_id)"),
        ("idx_chunk_buffer_document", "document_chunk_buffer (document_id)"),
        ("idx_vector_buffer_document", "document_vector_buffer (document_id)"),
        ("idx_vector_buffer_embedding_progress", "document_vector_buffer (document_id, embed_model, embed_version)"),
        ("uq_chunk_ord", "UNIQUE document_chunks (document_id, chunker_name, chunker_version, chunk_ord)"),
        ("uq_vector_buffer", "UNIQUE document_vector_buffer (chunk_id, embed_model, embed_version)"),
        ("idx_events_job_ts", "events (job_id, ts DESC)"),
        ("idx_events_doc_ts", "events (document_id, ts DESC)"),
        # DESIGN §4: one active job a document, a cap that the index keeps.
        ("uq_job_document_active", "UNIQUE upload_jobs (document_id) WHERE queued working retryable"),
        ("uq_job_user_slot", "UNIQUE upload_jobs (user_id, slot) WHERE working"),
    ],
)
def test_an_index_that_the_specs_name_exists(name: str, definition: str) -> None:
    found = rows("SELECT indexdef FROM pg_indexes WHERE indexname = %s", name)

    assert len(found) == 1
    squeezed = found[0][0].replace("public.", "").replace("USING btree ", "").replace("USING ", "")
    first, *rest = definition.split(" (")
    assert all(word in squeezed for word in first.split())
    assert all(f"({part.partition(')')[0]})" in squeezed for part in rest)
    assert all(word in squeezed for word in definition.rpartition(")")[2].split())


def test_the_chunk_table_leaves_room_and_keeps_its_wide_columns_last() -> None:
    ((options,),) = rows("SELECT reloptions FROM pg_class WHERE oid = 'document_chunks'::regclass")
    names = list(real_columns("document_chunks"))

    assert "fillfactor=70" in options
    assert names[-5:] == ["embed_version", "vector_dim", "vector_sha", "embed_updated_at", "embedding"]


@pytest.mark.parametrize(
    ("child", "parent"),
    [
        ("upload_jobs", "documents"),
        ("document_chunks", "documents"),
        ("document_chunk_buffer", "documents"),
        ("document_vector_buffer", "document_chunks"),
        ("events", "upload_jobs"),
        ("events", "documents"),
    ],
)
def test_a_child_row_cannot_be_without_its_parent(child: str, parent: str) -> None:
    found = rows(
        "SELECT 1 FROM pg_constraint WHERE contype = 'f' AND conrelid = %s::regclass AND confrelid = %s::regclass",
        child, parent,
    )  # fmt: skip

    assert found


# What the CHECKs refuse, tried on real rows


@pytest.mark.parametrize(
    ("table", "change", "constraint"),
    [
        ("upload_jobs", "stage = 'finalizing', state = 'queued', finished_at = NULL", "job_stage_known"),
        ("upload_jobs", "state = 'lost', finished_at = NULL", "job_state_known"),
        ("upload_jobs", "state = 'working', finished_at = NULL", "job_held_while_working"),
        ("upload_jobs", "state = 'retryable', finished_at = NULL", "job_retryable_has_a_time"),
        ("upload_jobs", "finished_at = NULL", "job_finished_when_ended"),
        ("upload_jobs", "stage = 'parsed'", "job_done_is_embedded"),
        ("upload_jobs", "attempts = -1", "job_counts_not_negative"),
        ("upload_jobs", "run_after = now()", "job_parked_only_idle"),
        ("events", "type = 'stage_lost'", "event_type_known"),
        ("events", "severity = 'fatal'", "event_severity_known"),
        ("document_chunks", "vector_dim = 256", "chunk_vector_dim"),
        ("document_chunks", "embed_model = NULL", "chunk_embedding_whole"),
        ("document_chunks", "embedding = NULL", "chunk_embedding_whole"),
        ("document_chunks", "chunk_ord = 0, chunk_id = chunk_id", "uq_chunk_ord"),
        ("api_tokens", "scope = 'root'", "token_scope_known"),
    ],
)
def test_a_row_that_breaks_a_rule_is_refused(table: str, change: str, constraint: str, ana: Person) -> None:
    ana.ingest(plan_pdf("hospital care", "drugs"))

    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        rows(f"UPDATE {table} SET {change} RETURNING 1")


def test_a_second_active_job_of_a_document_is_refused(ana: Person) -> None:
    uploaded = ana.upload(plan_pdf("drugs"))
    job = uploaded.job

    with pytest.raises(IntegrityError, match="uq_job_"), transaction.atomic():
        UploadJob.objects.create(
            user_id=ana.id, document_id=uploaded.document_id, raw_path=job.raw_path, chunks_version="", stage="parsing"
        )


def test_the_same_bytes_of_one_tenant_are_one_document(ana: Person) -> None:
    document = Document.objects.get(pk=ana.upload(plan_pdf("drugs")).document_id)
    document.pk = another = "6c8a1e6e-1f0b-4aa8-9f0a-1a7c2e6f2b43"

    with pytest.raises(IntegrityError, match="uq_user_filehash"), transaction.atomic():
        document.save(force_insert=True)
    assert not Document.objects.filter(pk=another).exists()


WORKING = "state = 'working', claim_token = gen_random_uuid(), claimed_at = now(), lease_until = now(), slot = 0"
STATUSES = [
    *[(stage, "state = 'queued'", status) for status, stages in STAGE_STATUSES.items() for stage in stages],
    *[
        (stage, "state = 'deadletter', finished_at = now()", status)
        for status, stages in FAILED_STATUSES.items()
        for stage in stages
    ],
    ("embedding", WORKING, "embedding_in_progress"),
    ("embedded", "state = 'done', finished_at = now()", "complete"),
]


@pytest.mark.parametrize(("stage", "state", "status"), STATUSES)
def test_the_single_status_of_context_002_is_derived_by_the_database(
    stage: Stage, state: str, status: str, ana: Person
) -> None:
    uploaded = ana.upload(plan_pdf("drugs"))

    rows(f"UPDATE upload_jobs SET stage = '{stage}', {state} RETURNING 1")

    assert uploaded.job.status == status
    # The document's own column is derived as well, at every move.
    assert Document.objects.get(pk=uploaded.document_id).processing_status == status
