"""Both arms of a search: how they are fused, narrowed, marked and merged, and that neither leaves the tenant."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import numpy
import pytest
from django.conf import settings
from django.db import connection

from accounts.rls import as_tenant
from documents.models import Document
from embeddings import active_model
from embeddings.embedders import registry
from embeddings.embedders.registry import DIMENSIONS
from embeddings.models import DocumentChunk
from embeddings.search import bm25, fusion
from embeddings.search.hybrid_search import search as retrieve
from embeddings.search.vector_search import Scope, nearest_chunks
from embeddings.tests.conftest import RecordingOpenAIServer
from testing.factories.searchable_documents import create_searchable_document
from testing.personas import Person

pytestmark = pytest.mark.django_db

BOTH = ("vector", "text")


def search(person: Person, query: str, **more: Any) -> list[dict[str, Any]]:
    answer = person.post("/search", {"query": query, **more})
    assert answer.status_code == 200, answer.content
    passages: list[dict[str, Any]] = answer.json()["passages"]
    return passages


def texts_of(passages: list[dict[str, Any]]) -> list[str]:
    return [passage["text"] for passage in passages]


# Fusion


def test_the_score_is_the_sum_of_its_parts_weighted_reciprocal_ranks(ana: Person) -> None:
    create_searchable_document(ana.id, ["wig care", "wig wig repair", "kidney care", "hearing aids"])
    weight = fusion.VECTOR_WEIGHTS.get(registry.get_embedder(settings.EMBEDDER).model, fusion.VECTOR_WEIGHT)

    passages = retrieve(user_id=ana.id, query="wig care", reranks=False)

    assert [passage.score for passage in passages] == sorted((p.score for p in passages), reverse=True)
    for passage in passages:
        vector, text = passage.parts.vector, passage.parts.text
        assert passage.score == pytest.approx(
            (weight / (fusion.K + vector.rank) if vector else 0)
            + (fusion.TEXT_WEIGHT / (fusion.K + text.rank) if text else 0)
        )
    assert {passage.parts.vector.rank for passage in passages if passage.parts.vector} == {1, 2, 3, 4}
    assert [p.text for p in passages if p.parts.text is None] == ["hearing aids"]


def test_each_mode_uses_its_own_retriever(ana: Person) -> None:
    create_searchable_document(ana.id, ["wig care", "kidney care", "hearing aids"])

    by_text, by_vector = search(ana, "wig", mode="text"), search(ana, "wig", mode="vector")

    assert texts_of(by_text) == ["wig care"]
    assert by_text[0]["parts"]["vector"] is None
    assert len(by_vector) == 3
    assert all(passage["parts"]["text"] is None for passage in by_vector)


def test_equal_scores_are_ordered_by_id(ana: Person) -> None:
    for _ in range(3):
        create_searchable_document(ana.id, ["wig care"] * 3)

    for mode in (*BOTH, "hybrid"):
        ids = [passage["chunk_id"] for passage in search(ana, "wig care", mode=mode, k=5)]
        assert ids == [passage["chunk_id"] for passage in search(ana, "wig care", mode=mode, k=9)][:5], mode


# Phrases and exclusions


@pytest.mark.parametrize("mode", [*BOTH, "hybrid"])
def test_phrases_are_required_and_excluded_words_forbidden(mode: str, ana: Person) -> None:
    create_searchable_document(
        ana.id, ["prior authorization for a wig", "authorization prior to a wig", "prior authorizations", "kidney"]
    )

    def texts(query: str) -> set[str]:
        return set(texts_of(search(ana, query, mode=mode)))

    assert texts('"prior authorization" wig') == {"prior authorization for a wig", "prior authorizations"}
    assert "prior authorization for a wig" not in texts("authorization -wig")
    assert "prior authorizations" in texts("authorization -wig")
    assert texts('authorization -"prior authorization"') & {"prior authorizations", "kidney"} <= {"kidney"}
    assert texts("“prior authorization” -wigs") == {"prior authorizations"}


# Filters


def test_filters_apply_within_both_retrievers(ana: Person) -> None:
    """Three passages of a hundred pass, and all of them are the worst by both arms."""
    vectors = numpy.zeros((100, DIMENSIONS), dtype=numpy.float32)
    vectors[:, 0], vectors[:, 1] = numpy.cos(numpy.linspace(0, 1, 100)), numpy.sin(numpy.linspace(0, 1, 100))
    texts = ["wig care " * 3] * 97 + ["wig " + "kidney " * 200] * 3
    create_searchable_document(
        ana.id, texts, vectors=vectors, headings=[["Part"]] * 97 + [["Chapter 9", "Hair LOSS"]] * 3
    )

    for mode in (*BOTH, "hybrid"):
        assert len(search(ana, "wig", mode=mode, filters={"pages": [98, 200]})) == 3, mode
        assert len(search(ana, "wig", mode=mode, filters={"heading": "9 > hair l"})) == 3, mode
        assert search(ana, "wig", mode=mode, filters={"heading": "%"}) == []
    pages = [passage["pages"] for passage in search(ana, "wig", filters={"pages": [98, 98]})]
    assert pages == [[98, 98]]


def test_filters_on_documents_narrow_to_them(ana: Person) -> None:
    old, new = (
        create_searchable_document(ana.id, ["wig care"], filename="Plan 2025.pdf"),
        create_searchable_document(ana.id, ["wig"], filename="2026.pdf"),
    )
    Document.objects.filter(pk=old).update(created_at=datetime(2025, 3, 1, 12, tzinfo=UTC))
    Document.objects.filter(pk=new).update(created_at=datetime(2026, 3, 1, tzinfo=UTC))

    def names(**filters: Any) -> list[str]:
        return sorted(
            passage["filename"] for mode in BOTH for passage in search(ana, "wig", mode=mode, filters=filters)
        )

    assert names(filename="plan 2025.PDF") == ["Plan 2025.pdf"] * 2
    assert names(filename="plan") == []
    assert names(uploaded_after="2026-03-01") == ["2026.pdf"] * 2
    assert names(uploaded_before="2026-03-01") == ["Plan 2025.pdf"] * 2
    assert (
        names(uploaded_after="2025-03-01T14:00:00+02:00", uploaded_before="2025-03-01T12:00:01Z")
        == ["Plan 2025.pdf"] * 2
    )
    assert search(ana, "wig", document_ids=[str(new)], filters={"filename": "plan 2025.pdf"}) == []


# Merging


def cut(ana: Person) -> UUID:
    """Four passages: two of one section that overlap, one of its table that goes on, one of another section."""
    document_id = create_searchable_document(
        ana.id, ["wig one. wig two.", "wig two. wig three.", "| wig |\n|---|\n| d |", "wig e."]
    )
    places = [(0, 17, ["S"]), (9, 28, ["S"]), (29, 34, ["S"]), (36, 42, ["T"])]
    for at, (start, end, headings) in enumerate(places):
        meta = {"start": start, "end": end, "headings": headings, "pages": [at + 1, at + 1]}
        DocumentChunk.objects.filter(document_id=document_id, chunk_ord=at).update(meta=meta)
    return document_id


def test_neighbours_of_a_section_are_merged_without_their_overlap(ana: Person) -> None:
    document_id = cut(ana)
    ids = list(DocumentChunk.objects.filter(document_id=document_id).order_by("chunk_ord").values_list("pk", flat=True))

    merged = {passage["start"]: passage for passage in search(ana, "wig", merge=True)}

    assert [merged[start]["text"] for start in (0, 36)] == ["wig one. wig two. wig three.\n| d |", "wig e."]
    assert merged[0]["chunk_ids"] == [str(pk) for pk in ids[:3]]
    assert (merged[0]["end"], merged[0]["pages"], merged[0]["headings"]) == (34, [1, 3], ["S"])
    assert merged[0]["snippet_text"] in ("wig one. wig two.", "wig two. wig three.", "d")
    assert merged[0]["score"] == max(p["score"] for p in search(ana, "wig") if p["chunk_id"] in merged[0]["chunk_ids"])
    assert len(search(ana, "wig")) == 4


def test_chunks_with_a_gap_between_them_are_not_merged(ana: Person) -> None:
    cut(ana)

    assert sorted(passage["start"] for passage in search(ana, "wig -three", merge=True)) == [0, 29, 36]


# What is not bought


def test_query_is_not_embedded_for_text_mode_or_an_empty_scope(ana: Person, vendor: RecordingOpenAIServer) -> None:
    assert search(ana, "wig") == []
    document_id = create_searchable_document(
        ana.id, ["wig care"], vectors=numpy.eye(1, DIMENSIONS, dtype=numpy.float32)
    )

    assert len(search(ana, "wig", mode="text")) == 1
    assert search(ana, "wig", document_ids=[str(uuid4())]) == search(ana, "wig", filters={"filename": "x"}) == []
    vendor.inject_fault("POST /v1/embeddings", "status-500")
    assert len(search(ana, "wig", mode="text", document_ids=[str(document_id)])) == 1
    assert vendor.requests == 0
    assert ana.post("/search", {"query": "wig"}).json()["code"] == "SEARCH_UNAVAILABLE"


# Tenancy: each layer alone


@pytest.fixture
def scopes(ana: Person, ben: Person) -> dict[str, Scope]:
    """Ana has a passage, Ben has none."""
    create_searchable_document(ana.id, ["wig care"])
    return {person.user.username[:3]: Scope(person.id, active_model.active_model(person.id)) for person in (ana, ben)}


def both(scope: Scope) -> list[int]:
    vector = registry.get_embedder(settings.EMBEDDER).embed(["wig"])[0].tolist()
    return [len(bm25.search_bm25(scope, ["wig"], 5)), len(nearest_chunks(scope, vector, 5))]


def test_the_policies_alone_hide_another_tenants_passages(scopes: dict[str, Scope], ana: Person, ben: Person) -> None:
    with as_tenant(ben.id):
        assert both(scopes["ana"]) == [0, 0]
    with as_tenant(ana.id):
        assert both(scopes["ana"]) == [1, 1]


def test_the_statements_alone_hide_another_tenants_passages(scopes: dict[str, Scope]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT row_security_active('document_terms')")
        assert cursor.fetchone() == (False,)  # the application's role: no policy applies

    assert both(scopes["ben"]) == [0, 0]
    assert both(scopes["ana"]) == [1, 1]
