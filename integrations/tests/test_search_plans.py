"""Query plans of the search of records: by index, with stale statistics too."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from integrations.models import ConnectedSource
from integrations.records import embedding_backfill, record_embedding
from integrations.search import search_records
from testing import planner_statistics
from testing.factories.records import create_record, create_source
from testing.personas import Person

pytestmark = pytest.mark.django_db
TABLES = ("source_documents", "client_intelligence")
SIZES = {"never vacuumed": (0, -1), "small": (10, 60), "large": (25_000, 100_000)}


@pytest.fixture(params=SIZES)
def believed(request: pytest.FixtureRequest, never_vacuumed: None, ana: Person, ben: Person) -> ConnectedSource:
    """Ana's source among Ben's many records, in tables of a size that is believed."""
    many(create_source(ben.id), 500)
    source = create_source(ana.id)
    create_record(source, "company:1", "apples")
    pages, rows = SIZES[request.param]
    for table in TABLES:
        planner_statistics.set_table_statistics(table, pages=pages, rows=rows)
    return source


def many(source: ConnectedSource, count: int, *, model: str | None = None) -> None:
    """Insert records of one text: embedded by ``model``, or waiting for a vector."""
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO source_documents (user_id, source_id, external_id, document_type, raw_payload, text,
                                             embedding_model, embedding_text_sha256, embedding)
               SELECT %(user)s, %(source)s, 'note:' || n, 'hubspot.note', '{}', 'apples and pears', %(model)s,
                      CASE WHEN %(model)s::text IS NOT NULL THEN sha256('apples and pears') END,
                      CASE WHEN %(model)s::text IS NOT NULL THEN array_fill(0.1, ARRAY[1536])::vector END
               FROM generate_series(1, %(count)s) n""",
            {"user": source.user_id, "source": source.pk, "model": model, "count": count},
        )


@contextmanager
def plans(marker: str) -> Iterator[list[str]]:
    seen: list[str] = []

    def explained(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        if isinstance(sql, str) and marker in sql:
            with connection.connection.cursor() as cursor:
                cursor.execute("EXPLAIN " + sql, params)
                seen.append("\n".join(line for (line,) in cursor.fetchall()))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explained):
        yield seen


def ask(user_id: UUID, **more: Any) -> None:
    assert search_records(user_id=user_id, query="apples", sources=["hubspot", "clients"], **more)


def test_vectors_are_chosen_by_their_signs_from_the_index_alone(believed: ConnectedSource) -> None:
    with plans("embedding_signs") as seen:
        ask(believed.user_id, mode="vector")

    for table, plan in zip(TABLES, seen, strict=True):
        assert not re.search("Seq Scan|Nested Loop|Hash Join", plan)
        if vacuumed(table):  # before, any index that begins with the tenant costs the same
            assert f"Index Only Scan using ix_{table}_vectors" in plan


def vacuumed(table: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT reltuples >= 0 FROM pg_class WHERE oid = %s::regclass", [table])
        ids: bool = cursor.fetchone()[0]
    return ids


def read(kind: str, name: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pg_stat_get_xact_{kind}(%s::regclass)", [name])
        ids: int = cursor.fetchone()[0]
    return ids


def test_words_are_looked_up_in_the_tenants_own_entries(believed: ConnectedSource) -> None:
    names = {"words": "ix_source_documents_words", "table": "source_documents"}
    before = read("numscans", names["words"]), read("tuples_returned", names["words"]), read("numscans", names["table"])

    ask(believed.user_id, mode="text")

    scans, entries, passes = (
        read("numscans", names["words"]) - before[0],
        read("tuples_returned", names["words"]) - before[1],
        read("numscans", names["table"]) - before[2],
    )
    assert scans
    assert entries <= 4, "Ben's 500 are not among them"
    assert passes == 0, "nothing is read from end to end"


def test_tenants_with_unembedded_records_are_found_by_index(believed: ConnectedSource, ben: Person) -> None:
    with plans("may_wait") as seen:
        waiting = list(embedding_backfill.TenantCursor().read_next())

    assert waiting == [ben.id]
    assert "Seq Scan on source_documents" not in seen[0]
    assert "Seq Scan on client_intelligence" not in seen[0]


def test_unembedded_records_are_found_without_reading_embedded_ones(believed: ConnectedSource) -> None:
    model = record_embedding.tenant_vectors(believed.user_id).model
    many(believed, 2_000, model=model)  # with fewer, an index of all records is as short as the one of those that wait
    with connection.cursor() as cursor:
        cursor.execute(embedding_backfill.PLANNER_SETTINGS)
        sql = embedding_backfill.BATCH.format(table="source_documents", condition=embedding_backfill.CONDITION)
        values: dict[str, Any] = {"user": believed.user_id, "model": model, "most": 32, "refused": []}
        cursor.execute("EXPLAIN " + sql, values)
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert len(re.findall("using ix_source_documents_(?:waiting|vectors)", plan)) == 3, plan
