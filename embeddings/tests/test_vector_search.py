"""The vector arm: every row of one's own and none of another's, whatever the plan and whichever table it is in."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.db.models.functions import Now
from psycopg.sql import SQL, Composable

from accounts.rls import as_tenant
from embeddings import hnsw_indexes
from embeddings.embedders.registry import EmbeddingModel
from embeddings.models import ActiveModel, DocumentChunk, ShadowVector, VectorIndex
from embeddings.search import vector_search
from embeddings.search.hybrid_search import probe_index, search_snapshot
from embeddings.search.vector_search import Scope, VectorHit, nearest_chunks, nearest_chunks_exact
from testing import planner_statistics
from testing.factories import vectors
from testing.factories.vectors import LIVE_MODEL, StoredVectors, store_vectors

pytestmark = pytest.mark.django_db
OTHER = EmbeddingModel("other'; -- {0} %s \\", "2%")


@pytest.fixture
def user() -> UUID:
    return uuid4()


@pytest.fixture(autouse=True)
def inside_a_transaction(db: None, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """Indexes as they are sealed, but rolled back with the test: CONCURRENTLY is for test_indexes.

    In tables whose size is known, as autovacuum leaves them: it may have seen those of another test empty.
    """
    for table in ("document_chunks", "shadow_vectors"):
        planner_statistics.set_table_statistics(table, pages=2000, rows=100_000)
    settings.SEARCH_EXACT_PASSAGES = 100
    monkeypatch.setattr(hnsw_indexes, "CREATE", hnsw_indexes.CREATE.replace("CONCURRENTLY", ""))


def sealed(user_id: UUID, live: EmbeddingModel = LIVE_MODEL, table: str = "document_chunks") -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        hnsw_indexes._build_if_needed(user_id, live.model, live.version, table)
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


@contextmanager
def plans() -> Iterator[list[str]]:
    """How PostgreSQL goes about each statement that looks for vectors."""
    seen: list[str] = []

    def explained(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        if isinstance(sql, Composable):
            with connection.connection.cursor() as cursor:
                cursor.execute(SQL("EXPLAIN (COSTS OFF) ") + sql)
                seen.append("\n".join(line for (line,) in cursor.fetchall()))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explained):
        yield seen


def mislead_the_planner(**costs: str) -> None:
    """Make the planner choose another plan wherever its settings are not pinned."""
    with connection.cursor() as cursor:
        for name, setting in costs.items():
            cursor.execute("SELECT set_config(%s, %s, true)", [name, setting])


def query_vectors(stored: StoredVectors, count: int = 12) -> Any:
    return vectors.perturb_vectors(stored.vectors[:: max(1, len(stored.vectors) // count)], seed=7)


def same(scope: Scope, vector: Any, n: int = 10) -> list[VectorHit]:
    """Return the hits of both ways, which must be equal."""
    with search_snapshot(scope.user_id, scope.live):
        hits, exact = nearest_chunks(scope, vector, n), nearest_chunks_exact(scope, vector, n)
    assert hits == exact
    return hits


def test_exact_scan_reads_only_the_tenants_rows(user: UUID) -> None:
    stored = store_vectors(user, vectors.generate_vectors(60))
    mislead_the_planner(random_page_cost="1000000")

    with plans() as seen:
        hits = same(Scope(user, LIVE_MODEL), stored.vectors[7], 100)

    assert hits[0].chunk_id == stored.chunk_ids[7]
    assert hits[0].similarity == pytest.approx(1.0)
    assert len(hits) == 60
    assert all("Seq Scan" not in plan and "ix_chunks_user_model" in plan and "hnsw" not in plan for plan in seen)


@pytest.mark.slow
def test_indexed_and_newer_vectors_are_searched_together(user: UUID) -> None:
    first = store_vectors(user, vectors.generate_vectors(150, seed=1))
    sealed(user)
    second = store_vectors(user, vectors.generate_vectors(150, seed=2))
    sealed(user)
    last = store_vectors(user, vectors.generate_vectors(60, seed=3))
    names = VectorIndex.objects.values_list("name", flat=True)

    for stored in (first, second, last):
        for vector in query_vectors(stored):
            with plans() as seen, as_tenant(user):
                hits = nearest_chunks(Scope(user, LIVE_MODEL), vector, 10)

            assert hits == same(Scope(user, LIVE_MODEL), vector)
            assert "Seq Scan" not in seen[0]
            assert len(names) == 2
            assert all(f"Index Scan using {name}" in seen[0] for name in names)
            assert len(seen) == 1  # no exact scan was needed


def test_vectors_changed_after_the_build_are_found_as_they_are(user: UUID) -> None:
    stored = store_vectors(user, vectors.generate_vectors(150))
    sealed(user)
    moved = vectors.generate_vectors(1, seed=9)[0]

    DocumentChunk.objects.filter(pk=stored.chunk_ids[3]).delete()
    DocumentChunk.objects.filter(pk=stored.chunk_ids[5]).update(embedding=moved, embed_updated_at=Now())

    assert stored.chunk_ids[3] not in {hit.chunk_id for hit in same(Scope(user, LIVE_MODEL), stored.vectors[3])}
    assert same(Scope(user, LIVE_MODEL), moved)[0].chunk_id == stored.chunk_ids[5]
    assert stored.chunk_ids[5] != same(Scope(user, LIVE_MODEL), stored.vectors[5])[0].chunk_id
    assert len({hit.chunk_id for hit in same(Scope(user, LIVE_MODEL), moved, 149)}) == 149


def test_filter_that_the_index_cannot_serve_falls_back_to_an_exact_scan(
    user: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = import_module("embeddings.search.vector_search").INDEX_SETTINGS
    monkeypatch.setitem(limits, "hnsw.max_scan_tuples", 1)  # as soon as 80 were looked at
    stored = store_vectors(user, vectors.generate_vectors(300), texts=[f"100% of {{0}} '{at}'" for at in range(300)])
    sealed(user)
    rare = (("c.text LIKE %(like)s", {"like": "100%\\% of {0} '%9'"}), ("c.chunk_ord <> %(not)s", {"not": 9}))
    scope = Scope(user, LIVE_MODEL, conditions=rare)

    hits = same(scope, stored.vectors[0], 10)
    every = same(scope, stored.vectors[0], 100)

    assert len(hits) == 10
    assert {hit.chunk_id for hit in every} == {stored.chunk_ids[at] for at in range(9, 300, 10) if at % 100 != 9}


def test_documents_narrow_a_large_tenant(user: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = store_vectors(user, vectors.generate_vectors(300))
    sealed(user)
    own = stored.document_ids[100]
    scope = Scope(user, LIVE_MODEL, document_ids=(own, uuid4()))

    with plans() as seen, as_tenant(user):
        few = nearest_chunks(scope, stored.vectors[0], 100)
    monkeypatch.setattr("embeddings.search.vector_search.FEW_PASSAGES", 10)

    assert {hit.chunk_id for hit in few} == set(stored.chunk_ids[100:200])
    assert "hnsw" not in seen[0]
    assert same(scope, stored.vectors[0], 100) == few
    assert same(Scope(user, LIVE_MODEL, document_ids=()), stored.vectors[0]) == []
    assert same(Scope(user, LIVE_MODEL), stored.vectors[0], 0) == []


def test_only_vectors_of_the_requested_model_are_compared(user: UUID) -> None:
    ours = store_vectors(user, vectors.generate_vectors(150))
    ActiveModel.objects.all().delete()
    theirs = store_vectors(user, ours.vectors, live=OTHER)
    DocumentChunk.objects.filter(pk=theirs.chunk_ids[0]).update(embed_version="3")
    DocumentChunk.objects.filter(pk=theirs.chunk_ids[1]).update(
        embed_model=None, embed_version=None, vector_dim=None, vector_sha=None, embedding=None, embed_updated_at=None
    )
    for live in (LIVE_MODEL, OTHER):
        sealed(user, live)

    assert {hit.chunk_id for hit in same(Scope(user, LIVE_MODEL), ours.vectors[0], 400)} == set(ours.chunk_ids)
    assert {hit.chunk_id for hit in same(Scope(user, OTHER), ours.vectors[0], 400)} == set(theirs.chunk_ids[2:])


def test_a_tenant_that_was_cut_over_is_found_in_both_tables(user: UUID) -> None:
    before = store_vectors(user, vectors.generate_vectors(150))
    ActiveModel.objects.all().delete()
    vectors.store_shadow_vectors(before, vectors.generate_vectors(150, seed=5), live=OTHER)
    sealed(user, OTHER, "shadow_vectors")
    after = store_vectors(user, vectors.generate_vectors(40, seed=6), live=OTHER)
    scope = Scope(user, EmbeddingModel(OTHER.model, OTHER.version, shadowed=True))

    with plans() as seen, as_tenant(user):
        assert len(nearest_chunks(scope, after.vectors[0], 100)) == 100
    hits = same(scope, after.vectors[0], 400)
    filtered = Scope(user, scope.live, conditions=(("c.chunk_ord < %(most)s", {"most": 40}),))

    assert "Seq Scan" not in seen[0]
    assert "idx_hnsw_shadow_" in seen[0]
    assert {hit.chunk_id for hit in hits} == {*before.chunk_ids, *after.chunk_ids}
    assert len(same(filtered, after.vectors[0], 400)) == 40 + 40 + 40
    assert len(same(Scope(user, OTHER), after.vectors[0], 400)) == 40


def test_two_tenants_with_the_same_text_never_see_each_other(user: UUID) -> None:
    other = uuid4()
    rows = vectors.generate_vectors(150)
    own, theirs = store_vectors(user, rows), store_vectors(other, rows)
    for tenant in (user, other):
        sealed(tenant)

    for look in (nearest_chunks, nearest_chunks_exact):
        scoped = {
            hit.chunk_id for hit in look(Scope(user, LIVE_MODEL), rows[0], 300)
        }  # no policies: as the application
        with as_tenant(user):  # no scoping: asked for the other's
            guarded = look(Scope(other, LIVE_MODEL), rows[0], 300)
        unguarded = {hit.chunk_id for hit in look(Scope(other, LIVE_MODEL), rows[0], 300)}

        assert scoped == set(own.chunk_ids)
        assert guarded == []
        assert unguarded == set(theirs.chunk_ids)


def test_the_policies_hide_shadow_vectors_and_indexes_too(user: UUID) -> None:
    stored = store_vectors(user, vectors.generate_vectors(150))
    vectors.store_shadow_vectors(stored, stored.vectors, live=OTHER)
    sealed(user)

    with as_tenant(uuid4()):
        assert not ShadowVector.objects.exists()
        assert not VectorIndex.objects.exists()
    with as_tenant(user):
        assert ShadowVector.objects.count() == 150
        assert VectorIndex.objects.count() == 1


SETTINGS = "SELECT current_setting('enable_sort') || current_setting('enable_seqscan') || current_setting('jit')"


def test_search_resets_its_settings(user: UUID) -> None:
    stored = store_vectors(user, vectors.generate_vectors(150))
    sealed(user)
    with connection.cursor() as cursor, as_tenant(user):
        cursor.execute(SETTINGS)
        before = cursor.fetchone()

        nearest_chunks(Scope(user, LIVE_MODEL), stored.vectors[0], 10)

        cursor.execute(SETTINGS)
        assert cursor.fetchone() == before
        cursor.execute("SELECT current_setting('role'), current_setting('hnsw.iterative_scan')")
        assert cursor.fetchone() == ("accessa_client", "off")


def test_the_probe_searches_as_the_tenant_does(user: UUID) -> None:
    stored = store_vectors(user, vectors.generate_vectors(150))
    sealed(user)

    with plans() as seen:
        probe_index(stored.document_ids[0], user_id=user, seconds=5)
        probe_index(uuid4(), user_id=user, seconds=5)

    (plan,) = seen
    assert "hnsw" in plan


def test_late_index_is_replaced_by_a_comparison_of_signs(user: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("embeddings.search.vector_search"), "COMPARED", 100)
    first = store_vectors(user, vectors.generate_vectors(150, seed=1))
    sealed(user)
    late = store_vectors(user, vectors.generate_vectors(400, seed=2))
    store_vectors(uuid4(), late.vectors)
    DocumentChunk.objects.filter(pk=late.chunk_ids[0]).delete()

    for vector in query_vectors(late):
        with plans() as seen, as_tenant(user):
            hits = nearest_chunks(Scope(user, LIVE_MODEL), vector, 10)
            exact = nearest_chunks_exact(Scope(user, LIVE_MODEL), vector, 10)

        assert len(set(hits) & set(exact)) >= 9
        assert hits == sorted(hits, key=lambda hit: -hit.similarity)
        assert seen[0].count("embedding_signs <~>") == 1
        assert "Seq Scan" not in seen[0]
        assert "hnsw" in seen[0]
        assert "embedding_signs" not in seen[-1]

    few = (("c.chunk_ord = %(ord)s", {"ord": 7}),)
    assert len(same(Scope(user, LIVE_MODEL, conditions=few), first.vectors[0])) == 6  # filtered: compared one by one


def test_vectors_that_an_index_covers_are_not_read_to_count_the_others(user: UUID) -> None:
    """A condition that row-level security keeps out of the index would read 30,000 entries of it in each search."""
    store_vectors(user, vectors.generate_vectors(150))
    sealed(user)

    with search_snapshot(user), connection.cursor() as cursor:
        cursor.execute(
            f"EXPLAIN (COSTS OFF) {vector_search.BUILT_INDEXES}", Scope(user, LIVE_MODEL).params | {"most": 3_000}
        )
        plan = [line for (line,) in cursor.fetchall()]

    conditions = [line.split(":")[0].strip() for line in plan if "embed_updated_at" in line]
    assert conditions == ["Index Cond"] * 2, plan
