"""Tables of the database's catalog, against the columns, uniques and indexes that the specs write out."""

from typing import Any

import pytest
from django.db import connection

pytestmark = pytest.mark.django_db

# MVP context §4, RFC001 "Core Tables" and context 002 §3, united: column -> type and nullability.
COLUMNS = {
    "documents": """document_id uuid! user_id uuid! filename text! mime text! bytes_len int8! file_sha256 text!
        parsed_sha256 text raw_path text! parsed_path text processing_status text created_at timestamptz!
        updated_at timestamptz!""",
    "upload_jobs": """job_id uuid! user_id uuid! document_id uuid! stage text! state text! status text retry_count int4!
        idempotency_key text payload jsonb! progress jsonb! last_error jsonb claimed_by text claimed_at timestamptz
        started_at timestamptz finished_at timestamptz raw_path text! parsed_path text parsed_sha256 text
        chunks_version text! embed_model text embed_version text created_at timestamptz! updated_at timestamptz!""",
    "document_chunk_buffer": """chunk_id uuid! document_id uuid! chunk_ord int4! chunker_name text!
        chunker_version text! chunk_sha text! text text! meta jsonb created_at timestamptz!""",
    # Null until an embedding is committed: RFC001's chunking stage inserts chunks without embeddings.
    "document_chunks": """chunk_id uuid! document_id uuid! chunker_name text! chunker_version text! chunk_ord int4!
        text text! chunk_sha text! embed_model text embed_version text vector_dim int4 embedding vector
        embed_updated_at timestamptz created_at timestamptz! updated_at timestamptz!""",
    # Context 002's ``vector`` is called ``embedding``, as in the other two specs.
    "document_vector_buffer": """buffer_id uuid! document_id uuid! chunk_id uuid! embed_model text! embed_version text!
        vector_dim int4! embedding vector! vector_sha text! created_at timestamptz!""",
    "events": """event_id uuid! job_id uuid! document_id uuid! ts timestamptz! type text! severity text! code text!
        payload jsonb! correlation_id uuid""",
    # Spec 002 §6b.
    "source_documents": "embedding vector embedding_model text embedding_text_sha256 bytea",
    "client_intelligence": "embedding vector embedding_model text embedding_text_sha256 bytea",
}
UNIQUES = {
    "documents": ["(document_id)", "(user_id, file_sha256)"],
    "upload_jobs": ["(job_id)", "(document_id, stage) WHERE"],
    "document_chunk_buffer": ["(chunk_id)"],
    "document_chunks": ["(chunk_id)", "(document_id, chunker_name, chunker_version, chunk_ord)"],
    "document_vector_buffer": ["(buffer_id)", "(chunk_id, embed_model, embed_version)"],
    "events": ["(event_id)"],
    "source_documents": ["(source_id, external_id)"],
    "client_intelligence": ["(source_id, external_id) WHERE"],
}
INDEXES = {
    "uq_user_filehash": "(user_id, file_sha256)",
    "ix_documents_user": "(user_id)",
    "uq_job_doc_stage_active": "(document_id, stage) WHERE",
    "ix_jobs_state": "(state, created_at)",
    "idx_upload_jobs_status": "(status, created_at)",
    "idx_upload_jobs_document": "(document_id)",
    "idx_chunk_buffer_document": "(document_id)",
    "idx_vector_buffer_document": "(document_id)",
    "idx_vector_buffer_embedding_progress": "(document_id, embed_model, embed_version)",
    "idx_events_job_ts": "(job_id, ts DESC)",
    "idx_events_doc_ts": "(document_id, ts DESC)",
    "source_documents_embedding_text_sha256_idx": "(embedding_text_sha256) WHERE (embedding_text_sha256 IS NOT NULL)",
}

# Each write would enter it, for 3.0 ms instead of 0.1; segments of each tenant replace it (docs/decisions.md, "An HNSW
# index belongs to one tenant, one model and one span of time").
LEFT_OUT = "idx_hnsw_chunks_te3s_v1"


def rows(sql: str, *params: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        found: list[Any] = cursor.fetchall()
    return found


@pytest.mark.parametrize("table", COLUMNS)
def test_a_table_has_the_columns_of_the_specs(table: str) -> None:
    spec = COLUMNS[table].split()

    there = rows(
        """SELECT column_name, udt_name || CASE is_nullable WHEN 'NO' THEN '!' ELSE '' END
           FROM information_schema.columns WHERE table_schema = 'public' AND table_name = %s""",
        table,
    )

    assert dict(zip(spec[::2], spec[1::2], strict=True)).items() <= dict(there).items()


@pytest.mark.parametrize("table", UNIQUES)
def test_a_table_has_the_uniques_of_the_specs(table: str) -> None:
    there = [definition for (definition,) in rows("SELECT indexdef FROM pg_indexes WHERE tablename = %s", table)]

    unique = [definition for definition in there if definition.startswith("CREATE UNIQUE INDEX")]
    assert [columns for columns in UNIQUES[table] if not any(columns in definition for definition in unique)] == []


@pytest.mark.parametrize("name", INDEXES)
def test_an_index_of_the_specs_has_its_name_and_columns(name: str) -> None:
    ((definition,),) = rows("SELECT indexdef FROM pg_indexes WHERE indexname = %s", name)

    assert INDEXES[name] in definition


def test_the_embedding_stands_behind_the_small_columns() -> None:
    columns = rows(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'document_chunks'::regclass AND attnum > 0 ORDER BY attnum"
    )

    assert columns[-2:] == [("embedding",), ("embedding_signs",)]


def test_an_embedding_has_1536_dimensions_and_chunks_a_fillfactor_of_70() -> None:
    widths = rows(
        """SELECT attrelid::regclass::text, format_type(atttypid, atttypmod) FROM pg_attribute
           WHERE attname = 'embedding' AND attrelid::regclass::text IN ('document_chunks', 'document_vector_buffer')
           ORDER BY 1"""
    )

    assert widths == [("document_chunks", "vector(1536)"), ("document_vector_buffer", "vector(1536)")]
    assert (
        rows("SELECT reloptions::text FROM pg_class WHERE relname = 'document_chunks'")[0][0].find("fillfactor=70") > 0
    )


def test_each_row_of_a_child_table_refers_to_its_parent() -> None:
    there = rows(
        """SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint
           WHERE contype = 'f' AND conrelid::regclass::text = ANY(%s)""",
        list(COLUMNS),
    )

    assert {
        ("upload_jobs", "documents"),
        ("document_chunks", "documents"),
        ("document_vector_buffer", "document_chunks"),
        ("events", "upload_jobs"),
        ("events", "documents"),
    } <= set(there)


def test_the_indexes_of_the_specs_exist_but_for_the_global_hnsw_index() -> None:
    names = {name for (name,) in rows("SELECT indexname FROM pg_indexes WHERE schemaname = 'public'")}

    assert names & {*INDEXES, LEFT_OUT} == {*INDEXES}
