"""POST /search: own passages, of one model, for whatever anybody types."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import connection

from embeddings.models import DocumentChunk
from testing.people import Person, plan_pdf

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
    found: list[dict[str, Any]] = answer.json()["passages"]
    return found


def refused(answer: Any) -> tuple[int, str, str | None]:
    body = answer.json()
    assert set(body) <= {"code", "detail", "field"}
    return answer.status_code, body["code"], body.get("field")


def test_the_nearest_of_ones_own_passages_come_first(reader: Person) -> None:
    found = passages(reader, "dental care")

    assert found[0]["filename"] == "dental.pdf"
    assert "ben.pdf" not in {passage["filename"] for passage in found}
    assert [passage["score"] for passage in found] == sorted((p["score"] for p in found), reverse=True)
    assert set(found[0]) == {
        "chunk_id", "document_id", "filename", "text", "score", "pages", "headings", "start", "end",
    }  # fmt: skip
    assert all(-1.0001 <= passage["score"] <= 1.0001 for passage in found)


def test_the_same_question_gets_the_same_answer(reader: Person) -> None:
    assert passages(reader, "copay") == passages(reader, "copay")


def test_k_is_how_many_at_most(reader: Person) -> None:
    for k in (1, settings.MAX_SEARCH_RESULTS):
        assert len(passages(reader, "care", k=k)) == min(k, DocumentChunk.objects.filter(user_id=reader.id).count())


@pytest.mark.parametrize("k", [0, -1, settings.MAX_SEARCH_RESULTS + 1, 10**12])
def test_k_out_of_range_is_refused(k: int, ana: Person) -> None:
    assert refused(ana.post("/search", {"query": "x", "k": k})) == (400, "K_OUT_OF_RANGE", "k")


@pytest.mark.parametrize("k", ["many", 1.5, None, [], {}, 10**400, True])
def test_k_that_is_no_number_is_refused(k: Any, ana: Person) -> None:
    status, code, field = refused(ana.post("/search", {"query": "x", "k": k}))
    assert (status, code, field) in {(400, "INVALID_REQUEST", "k"), (400, "K_OUT_OF_RANGE", "k")}


@pytest.mark.parametrize("query", ["", "   ", "\n\t", "\u00a0\u2003"])
def test_an_empty_question_is_refused(query: str, ana: Person) -> None:
    assert refused(ana.post("/search", {"query": query})) == (400, "EMPTY_QUERY", "query")


def test_a_question_over_the_limit_is_refused(ana: Person) -> None:
    for length in (settings.MAX_QUERY_CHARS + 1, 200_000):
        assert refused(ana.post("/search", {"query": "a" * length})) == (400, "QUERY_TOO_LONG", "query")
    assert passages(ana, "a" * settings.MAX_QUERY_CHARS) == []


@pytest.mark.parametrize("query", [None, [], {}, ["x"], {"$ne": ""}])
def test_a_question_that_is_no_text_is_refused(query: Any, ana: Person) -> None:
    assert refused(ana.post("/search", {"query": query})) == (400, "INVALID_REQUEST", "query")


TYPED = [
    "😀😀😀", "מה ההשתתפות העצמית?", "ما هو الخصم؟", "\u202eera latned", "自己負担額", "\u200b", "\x01\x02\x7f",
    "' OR 1=1; DROP TABLE documents; --", "<script>alert(1)</script>", "%s %(x)s {} ${jndi:ldap://x}", "a\x00b",
    "\ufffd\uffff", "\U0001d56f\U0001d58a", "é" * 500, "\\u0000", "NaN",
]  # fmt: skip


def test_whatever_is_typed_is_a_question(reader: Person) -> None:
    for query in TYPED:
        answer = reader.client.post("/search", json.dumps({"query": query}), content_type="application/json")

        assert answer.status_code == 200 or refused(answer) == (400, "INVALID_REQUEST", "query"), query
        if answer.status_code == 200:
            assert all(passage["score"] == passage["score"] for passage in answer.json()["passages"])  # no NaN


def test_documents_narrow_the_search(reader: Person) -> None:
    hospital = DocumentChunk.objects.filter(user_id=reader.id, document__filename="hospital.pdf").first()
    assert hospital is not None

    found = passages(reader, "dental care", document_ids=[str(hospital.document_id), str(uuid4())])

    assert {passage["filename"] for passage in found} == {"hospital.pdf"}
    assert passages(reader, "dental care", document_ids=[]) == []


def test_unknown_and_foreign_documents_contribute_the_same_nothing(reader: Person, ben: Person) -> None:
    bens = DocumentChunk.objects.filter(user_id=ben.id).values_list("document_id", flat=True)[0]

    foreign = reader.post("/search", {"query": "dental", "document_ids": [str(bens)]})
    unknown = reader.post("/search", {"query": "dental", "document_ids": [str(uuid4())]})

    assert foreign.content == unknown.content == b'{"passages":[]}'


@pytest.mark.parametrize("ids", ["x", {}, ["x"], [None], [1], [[]], "6c8a1e6e-1f0b-4aa8-9f0a-1a7c2e6f2b42"])
def test_document_ids_that_are_none_are_refused(ids: Any, ana: Person) -> None:
    answer = ana.post("/search", {"query": "x", "document_ids": ids})

    # A number is read as the uuid of that value: it is nobody's document.
    assert refused(answer) == (400, "INVALID_REQUEST", "document_ids") if ids != [1] else answer.status_code == 200


def test_too_many_documents_are_refused(ana: Person) -> None:
    answer = ana.post("/search", {"query": "x", "document_ids": [str(uuid4()) for _ in range(1001)]})

    assert refused(answer) == (400, "INVALID_REQUEST", "document_ids")


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
def test_a_database_that_goes_away_is_503_and_comes_back(reader: Person) -> None:
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
    """What a dead address answers, without the embedded server's starting anew."""
    from django.db.utils import OperationalError  # noqa: PLC0415

    raise OperationalError("connection refused")
