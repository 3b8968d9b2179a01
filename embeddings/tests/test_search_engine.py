"""Search by Milvus: the same answers, from the rows alone; its feed; and PostgreSQL wherever it has no answer."""

from typing import Any

import pytest
from django.db.models.functions import Now

from documents import services
from documents.models import Document
from embeddings.embedders import registry
from embeddings.embedders.registry import EmbeddingModel
from embeddings.search_engine import delivery, entries, retrieval
from outbox.models import Message
from testing.factories.searchable_documents import create_searchable_document, create_searchable_markdown
from testing.milvus import feed
from testing.personas import Person
from vendors import calls
from vendors.models import VendorCall

pytestmark = pytest.mark.django_db(transaction=True)

TEXTS = (
    "The deductible is 500 dollars a year.",
    "Emergency care abroad is covered for 30 days.",
    "Dental cleanings are free twice a year.",
    "A referral is needed for a specialist.",
)
TABLE = """# Costs

| Service | In network | Out of network |
|---|---|---|
| Specialist visit | $60 copay | 40 % coinsurance |
| Primary care visit | $20 copay | 30 % coinsurance |
"""
QUERIES = ("deductible", "emergency care abroad", "specialist visit copay", "dental", "what does primary care cost")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the operations that the engine is asked for."""
    seen: list[str] = []
    ask = retrieval.EngineRetriever._ask

    def note(self: Any, operation: str, query: Any, most: int) -> Any:
        found = ask(self, operation, query, most)
        seen.append(operation if found is not None else f"{operation} failed")
        return found

    monkeypatch.setattr(retrieval.EngineRetriever, "_ask", note)
    return seen


def passages(person: Person, query: str, **body: Any) -> list[dict[str, Any]]:
    answer = person.post("/search", {"query": query, **body})
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["passages"]
    return found


def test_both_engines_give_the_same_answers(ana: Person, milvus: Any, asked: list[str], settings: Any) -> None:
    create_searchable_document(ana.id, TEXTS, filename="plan.pdf")
    create_searchable_markdown(ana.id, TABLE, filename="costs.pdf")
    assert feed() == 2

    by_engine = [passages(ana, query) for query in QUERIES]
    assert set(asked) == {"search_vectors", "search_words"}
    settings.SEARCH_ENGINE = "postgres"

    assert by_engine == [passages(ana, query) for query in QUERIES]


def test_what_is_not_sent_yet_is_found(ana: Person, milvus: Any, asked: list[str]) -> None:
    create_searchable_document(ana.id, TEXTS[:2])
    feed()

    later = create_searchable_document(ana.id, TEXTS[2:])

    assert passages(ana, "dental cleanings")[0]["document_id"] == str(later)
    assert asked[:2] == ["search_vectors", "search_words"]
    assert stored(milvus, ana) == 2


def test_what_is_deleted_is_not_found_although_the_engine_has_it(ana: Person, milvus: Any) -> None:
    create_searchable_document(ana.id, TEXTS[:2])
    gone = create_searchable_document(ana.id, TEXTS[2:])
    feed()

    services.delete(Document.objects.get(pk=gone))

    assert str(gone) not in {hit["document_id"] for hit in passages(ana, "dental cleanings")}
    assert ("milvus", "check_candidates", "stale") in outcomes()
    assert (stored(milvus, ana), feed(), stored(milvus, ana)) == (4, 1, 2)


def test_no_answer_of_the_engine_shows_another_tenants_passages(
    ana: Person, ben: Person, milvus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_searchable_document(ana.id, TEXTS[:2])
    create_searchable_document(ben.id, TEXTS)
    feed()
    search = milvus._search
    asked_as_ben = [search(ben.id, *query, 10) for query in queries(milvus)]
    assert [len(found) for found in asked_as_ben] == [4, 1]
    assert not set(asked_as_ben[0]) & set(search(ana.id, *queries(milvus)[0], 10))

    monkeypatch.setattr(milvus, "_search", lambda user_id, *query, **params: search(ben.id, *query, **params))

    assert passages(ana, "dental cleanings") == []
    assert passages(ben, "dental cleanings")


def test_postgresql_answers_while_the_engine_is_away(
    ana: Person, milvus: Any, asked: list[str], settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    create_searchable_document(ana.id, TEXTS)
    feed()
    expected, uri = passages(ana, "dental cleanings"), settings.MILVUS_URI
    asked.clear()

    settings.MILVUS_URI = "http://127.0.0.1:9"

    assert [passages(ana, "dental cleanings") for _ in range(2)] == [expected, expected]
    assert asked.count("search_vectors failed") == 1 or "search_words failed" in asked
    assert "PostgreSQL answers searches for a while." in caplog.text
    assert any(vendor == "milvus" and outcome == "VENDOR_UNREACHABLE" for vendor, _, outcome in outcomes())
    settings.MILVUS_URI = uri


def test_messages_wait_for_an_engine_that_is_away_and_are_never_given_up(
    ana: Person, milvus: Any, settings: Any
) -> None:
    documents = [create_searchable_document(ana.id, [text]) for text in TEXTS[:3]]
    uri, settings.MILVUS_URI = settings.MILVUS_URI, "http://127.0.0.1:9"
    Message.objects.update(attempts=50)

    assert feed() == 1  # the others wait with it

    assert Message.objects.filter(state="queued", due_at__gt=Now()).count() == 3
    settings.MILVUS_URI = uri
    Message.objects.filter(payload__document_id=str(documents[0])).update(due_at=Now())
    assert (feed(), Message.objects.count(), stored(milvus, ana)) == (3, 0, 3)


def test_postgresql_answers_alone_while_many_documents_wait(
    ana: Person, milvus: Any, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "MOST_PENDING", 1)
    for text in TEXTS[:2]:
        create_searchable_document(ana.id, [text])

    assert passages(ana, "deductible")
    assert asked == []


def test_filtered_searches_are_answered_by_postgresql(ana: Person, milvus: Any, asked: list[str]) -> None:
    document = create_searchable_document(ana.id, TEXTS)
    feed()

    assert passages(ana, "dental cleanings", document_ids=[str(document)])
    assert passages(ana, '"dental cleanings"', filters={"pages": [3, 3]})
    assert asked == []


def test_an_old_version_that_arrives_late_deletes_nothing(ana: Person, milvus: Any) -> None:
    document = create_searchable_document(ana.id, TEXTS)
    old, _ = entries.read_entries(document)
    feed()

    delivery.send(ana.id, document, [], old)

    assert stored(milvus, ana) == len(TEXTS)


def test_without_an_engine_nothing_is_written_for_it(ana: Person) -> None:
    create_searchable_document(ana.id, TEXTS)

    assert not Message.objects.exists()


def outcomes() -> set[tuple[str, str, str]]:
    """Return the vendor's calls by operation and outcome."""
    calls.flush_call_records()
    return set(VendorCall.objects.values_list("vendor", "operation", "outcome"))


def stored(engine: Any, person: Person) -> int:
    with engine.connected() as client:
        rows = client.query(engine._collection(), filter=f'tenant == "{person.id}"', output_fields=["id"], limit=100)
    return len(rows)


def queries(engine: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    embedder = registry.get_embedder("local")
    model = EmbeddingModel(embedder.model, embedder.version)
    vector = embedder.embed(["dental cleanings"])[0].tolist()
    return (model, engine.DENSE, vector), (model, engine.WORDS, engine.sparse_vector({"dental": 1.0}))
