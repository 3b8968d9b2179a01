"""What happens during a search: the model changes, a document is deleted, the database does not answer."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.db import connection

from accounts.errors import ApiError
from embeddings import active_model
from embeddings.embedders import registry
from embeddings.embedders.registry import EmbeddingModel
from embeddings.error_codes import SEARCH_UNAVAILABLE
from embeddings.models import ActiveModel, DocumentChunk
from embeddings.search.hybrid_search import search
from embeddings.search.query_parser import QueryEmbedding
from embeddings.search.results import SELECT_CHUNKS
from testing.factories.searchable_documents import create_searchable_document
from testing.personas import Person
from testing.slow_vendor import SlowVendor

pytestmark = pytest.mark.django_db


def move(user_id: UUID, model: str, version: str = "1") -> None:
    """Cut over and settle: no vector of the former model is left."""
    DocumentChunk.objects.filter(user_id=user_id).update(embed_model=model, embed_version=version)
    ActiveModel.objects.update_or_create(pk=user_id, defaults={"embed_model": model, "embed_version": version})


@contextmanager
def before_each(marker: str, do: Callable[[], None], *, instead: str | None = None) -> Iterator[list[str]]:
    """Do something whenever a statement with ``marker`` is about to run; yield those statements."""
    seen: list[str] = []

    def watch(execute: Any, sql: Any, params: Any, *rest: Any) -> Any:
        if isinstance(sql, str) and marker in sql:
            seen.append(sql)
            do()
            if instead:
                return execute(instead, None, *rest)
        return execute(sql, params, *rest)

    with connection.execute_wrapper(watch):
        yield seen


FETCH, POINTER = SELECT_CHUNKS, active_model.SELECT
STATE = """SELECT current_user, coalesce(current_setting('request.jwt.claims', true), ''),
    current_setting('statement_timeout'), current_setting('transaction_isolation')"""


# The model


@pytest.mark.parametrize("mode", ["hybrid", "vector"])
def test_cut_over_while_the_query_is_embedded_keeps_the_results(mode: str, ana: Person, settings: Any) -> None:
    settings.EMBEDDER = "testing.slow_vendor.SlowVendor"
    local = registry.get_embedder("local")
    create_searchable_document(ana.id, ["wig care", "wig repair"], vectors=local.embed(["wig care", "wig repair"]))
    move(ana.id, "slow")
    SlowVendor.meanwhile.append(lambda: move(ana.id, local.model, local.version))

    passages = search(user_id=ana.id, query="wig care", mode=mode)

    assert not SlowVendor.meanwhile
    assert [passage.text for passage in passages] == ["wig care", "wig repair"]
    vector = passages[0].parts.vector
    assert vector
    assert vector.similarity == pytest.approx(1, abs=1e-4)  # asked with the model that is live now


def test_search_follows_a_changing_model_three_times(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    create_searchable_document(ana.id, ["wig care"])
    versions = iter(range(1, 100))
    monkeypatch.setattr(QueryEmbedding, "is_at_hand", lambda *_: False)
    monkeypatch.setattr(QueryEmbedding, "vector", lambda *_: [1.0] * 1536)

    with (
        before_each(POINTER, lambda: move(ana.id, "known", str(next(versions)))) as reads,
        pytest.raises(ApiError) as error,
    ):
        search(user_id=ana.id, query="wig care")

    assert error.value.code == SEARCH_UNAVAILABLE
    assert len(reads) == 1 + 3


def test_search_by_words_reads_the_model_once(ana: Person) -> None:
    create_searchable_document(ana.id, ["wig care"])

    with before_each(POINTER, lambda: None) as reads:
        passages = search(user_id=ana.id, query="wig care", mode="text")

    assert len(reads) == 1
    assert [passage.text for passage in passages] == ["wig care"]


@pytest.mark.parametrize(("embedder", "snapshots"), [("local", 1), ("SlowVendor", 2)])
def test_only_a_vendor_is_called_between_two_snapshots(
    embedder: str, snapshots: int, ana: Person, settings: Any
) -> None:
    settings.EMBEDDER = embedder if embedder == "local" else f"testing.slow_vendor.{embedder}"
    create_searchable_document(
        ana.id, ["wig care"], vectors=registry.get_embedder(settings.EMBEDDER).embed(["wig care"])
    )
    move(ana.id, registry.get_embedder(settings.EMBEDDER).model)

    with before_each(POINTER, lambda: None) as reads:
        assert search(user_id=ana.id, query="wig care")

    assert len(reads) == snapshots


def test_requested_model_replaces_the_active_one(ana: Person) -> None:
    create_searchable_document(ana.id, ["wig care"])

    with before_each(POINTER, lambda: None) as reads:
        search(user_id=ana.id, query="wig", model=EmbeddingModel("another", "1"))

    assert reads == []


# The documents


@pytest.mark.django_db(transaction=True)
def test_document_deleted_during_the_search_leaves_no_gap(ana: Person) -> None:
    remaining, gone = create_searchable_document(ana.id, ["wig hair care"]), create_searchable_document(ana.id, ["wig"])
    other = connection.copy()

    def delete() -> None:
        """Once the arms have named it, and before it is fetched."""
        with other.cursor() as cursor:
            cursor.execute("DELETE FROM document_terms WHERE document_id = %s", [gone])
            cursor.execute("DELETE FROM document_chunks WHERE document_id = %s", [gone])

    try:
        with before_each(FETCH, delete) as fetches:
            during = search(user_id=ana.id, query="wig", k=1)
    finally:
        other.close()
    after = search(user_id=ana.id, query="wig", k=1)

    assert fetches
    assert [passage.document_id for passage in during] == [gone]  # as it was when the search began to look
    assert [passage.document_id for passage in after] == [remaining]
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('transaction_isolation')")
        assert cursor.fetchone() == ("read committed",)


# The database


def test_slow_statement_is_503_and_the_time_limit_is_reset(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    create_searchable_document(ana.id, ["wig care"])
    monkeypatch.setattr("embeddings.search.hybrid_search.SECONDS", 0.1)

    with before_each(FETCH, lambda: None, instead="SELECT pg_sleep(20)"):
        answer = ana.post("/search", {"query": "wig"})

    assert (answer.status_code, answer.json()["code"]) == (503, "SEARCH_UNAVAILABLE")
    assert int(answer["Retry-After"]) > 0
    monkeypatch.undo()
    assert ana.post("/search", {"query": "wig"}).status_code == 200
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('statement_timeout'), current_user = session_user")
        assert cursor.fetchone() == ("0", True)


@pytest.mark.django_db(transaction=True)
def test_search_sets_role_timeout_and_snapshot_and_resets_them(ana: Person) -> None:
    create_searchable_document(ana.id, ["wig care"])
    seen: list[tuple[Any, ...]] = []

    def look() -> None:
        with connection.cursor() as cursor:
            cursor.execute(STATE)
            seen.append(cursor.fetchone())

    with before_each(FETCH, look):
        search(user_id=ana.id, query="wig")
    look()

    claims = json.dumps({"sub": str(ana.id), "role": "authenticated"})
    assert seen == [
        (settings.TENANT_ROLE, claims, "10s", "repeatable read"),
        (connection.settings_dict["USER"], "", "0", "read committed"),
    ]


@pytest.mark.django_db(transaction=True)
def test_a_search_sends_few_statements_and_plans_those_of_all_tenants_once(ana: Person, ben: Person) -> None:
    for tenant in (ana, ben):
        create_searchable_document(tenant.id, ["wig care"])
    connection.close()  # another test may have prepared the same outside of a search
    planned = "SELECT count(*), sum(custom_plans) FROM pg_prepared_statements WHERE statement LIKE '%%' || %s || '%%'"

    with before_each("", lambda: None) as statements:
        search(user_id=ana.id, query="wig care")
    for tenant in (ben, ana, ben):
        search(user_id=tenant.id, query="wig care")

    assert len(statements) <= 11  # and the vector search, which is composed
    with connection.cursor() as cursor:
        for shared in ("posting_blocks", "sentence_vectors", "vector_indexes", "WITH ORDINALITY"):
            cursor.execute(planned, [shared])
            count, custom_plans = cursor.fetchone()
            assert count
            assert custom_plans == 0


@pytest.mark.django_db(transaction=True)
def test_search_works_without_prepared_statements(ana: Person) -> None:
    """As behind a pooler that gives each transaction another session."""
    create_searchable_document(ana.id, ["wig care"])
    connection.close()
    connection.ensure_connection()
    connection.connection.prepare_threshold = None  # DATABASE_TRANSACTION_POOLING

    assert len(search(user_id=ana.id, query="wig care")) == 1

    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements")
        assert cursor.fetchone() == (0,)
    connection.close()


@pytest.mark.django_db(transaction=True)
def test_slow_postings_are_503(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    create_searchable_document(ana.id, ["wig care"])
    monkeypatch.setattr("embeddings.search.hybrid_search.SECONDS", 0.1)
    other = connection.copy()

    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute("LOCK TABLE document_terms")
            answer = ana.post("/search", {"query": "wig", "mode": "text"})
    finally:
        other.close()

    assert (answer.status_code, answer.json()["code"]) == (503, "SEARCH_UNAVAILABLE")
