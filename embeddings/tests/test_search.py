"""POST /search: own passages, of one model, for whatever anybody types."""

from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection

from embeddings.models import DocumentChunk
from testing.personas import Person, plan_pdf

pytestmark = pytest.mark.django_db


@pytest.fixture
def reader(ana: Person, ben: Person) -> Person:
    """Ana, with two documents; Ben has one on the same subject."""
    ana.ingest(plan_pdf("dental care", lines=12), filename="dental.pdf")
    ana.ingest(plan_pdf("hospital stays", lines=12), filename="hospital.pdf")
    ben.ingest(plan_pdf("dental care", "eye care", lines=12), filename="ben.pdf")
    return ana


def passages(person: Person, query: str, **more: Any) -> list[dict[str, Any]]:
    answer = person.post("/search", {"query": query, **more})
    assert answer.status_code == 200, answer.content
    results: list[dict[str, Any]] = answer.json()["passages"]
    return results


def test_nearest_passages_come_first(reader: Person) -> None:
    results = passages(reader, "dental care")

    assert results[0]["filename"] == "dental.pdf"
    assert "ben.pdf" not in {passage["filename"] for passage in results}
    assert [passage["score"] for passage in results] == sorted((p["score"] for p in results), reverse=True)
    assert set(results[0]) == {
        "chunk_id", "chunk_ids", "document_id", "filename", "text", "snippet_text", "snippet_html", "score", "parts",
        "pages", "headings", "start", "end", "answer_span",
    }  # fmt: skip
    assert all(-1.0001 <= passage["parts"]["vector"]["similarity"] <= 1.0001 for passage in results)


def test_search_rate_limit_has_retry_after(reader: Person, ben: Person, settings: Any) -> None:
    settings.SEARCHES_PER_MINUTE = 2
    for _ in range(2):
        passages(reader, "copay")

    refused = reader.post("/search", {"query": "copay"})

    assert (refused.status_code, refused.json()["code"]) == (429, "SEARCH_LIMIT_REACHED")
    assert 0 < int(refused["Retry-After"]) <= 60
    assert passages(ben, "dental care")


def test_same_query_gives_the_same_results(reader: Person) -> None:
    assert passages(reader, "copay") == passages(reader, "copay")


def test_k_limits_the_results(reader: Person) -> None:
    for k in (1, settings.MAX_SEARCH_RESULTS):
        assert len(passages(reader, "care", k=k)) == min(k, DocumentChunk.objects.filter(user_id=reader.id).count())


def test_documents_narrow_the_search(reader: Person) -> None:
    hospital = DocumentChunk.objects.filter(user_id=reader.id, document__filename="hospital.pdf").first()
    assert hospital is not None

    results = passages(reader, "dental care", document_ids=[str(hospital.document_id), str(uuid4())], mode="vector")

    assert {passage["filename"] for passage in results} == {"hospital.pdf"}
    assert passages(reader, "dental care", document_ids=[]) == []


def test_unknown_and_foreign_documents_contribute_nothing(reader: Person, ben: Person) -> None:
    bens = DocumentChunk.objects.filter(user_id=ben.id).values_list("document_id", flat=True)[0]

    foreign = reader.post("/search", {"query": "dental", "document_ids": [str(bens)]})
    unknown = reader.post("/search", {"query": "dental", "document_ids": [str(uuid4())]})

    assert foreign.content == unknown.content == b'{"passages":[],"records":[],"laws":[],"nearest":[]}'


@pytest.mark.parametrize("column", ["embed_model", "embed_version"])
def test_vectors_of_another_model_are_never_compared(column: str, reader: Person) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE document_chunks SET {column} = 'other'")

    assert passages(reader, "dental care") == []


def test_passages_without_a_vector_yet_are_not_found(reader: Person) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE document_chunks SET embed_model = NULL, embed_version = NULL, vector_dim = NULL, vector_sha = NULL,"
            " embed_updated_at = NULL, embedding = NULL"
        )

    assert passages(reader, "dental care") == []


def test_a_tenant_with_nothing_finds_nothing(sam: Person) -> None:
    assert passages(sam, "anything") == []


@pytest.mark.django_db(transaction=True)
def test_search_without_the_database_is_503(reader: Person) -> None:
    good = connection.settings_dict["HOST"]
    connection.close()
    connection.settings_dict["HOST"] = "/nonexistent"
    connection.ensure_connection = refuse  # type: ignore[method-assign]
    try:
        answers = [reader.post("/search", {"query": "dental"}), reader.get("/documents"), reader.get("/readyz")]
    finally:
        connection.settings_dict["HOST"] = good
        del connection.ensure_connection

    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
        assert int(answer["Retry-After"]) > 0
    assert reader.post("/search", {"query": "dental"}).status_code == 200


def refuse() -> None:
    """Refuse a connection as a dead address does, without restarting the embedded server."""
    from django.db.utils import OperationalError  # noqa: PLC0415

    raise OperationalError("connection refused")
