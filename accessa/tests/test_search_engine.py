"""Search by Milvus: the same answers, from the rows alone; its feed; and PostgreSQL wherever it has no answer."""

import os
import signal
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

import hypothesis
import pytest
from django.core.management import CommandError, call_command
from django.db.models.functions import Now
from hypothesis import strategies as st

from documents import periodic, services
from documents.models import Document, ObjectDeletion
from embeddings import shadow_vectors
from embeddings.embedders import registry
from embeddings.embedders.registry import EmbeddingModel
from embeddings.models import ActiveModel, DocumentChunk
from embeddings.search import hybrid_search
from embeddings.search_engine import delivery, entries, maintenance, retrieval
from embeddings.tests.campaign_helpers import TARGET, recording_embedder, reembed
from jobs import worker
from outbox.models import Message
from portal import account_deletion
from testing.concurrency import run_concurrently
from testing.factories.searchable_documents import create_searchable_document, create_searchable_markdown
from testing.milvus import Server, feed
from testing.personas import Person, plan_pdf
from testing.sizes import size
from vendors import calls
from vendors.models import VendorCall

pytestmark = pytest.mark.django_db(transaction=True)

TENANTS = size(5, full=100)
FUZZ_CASES = size(10, full=1000)
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
    assert milvus.count_entries(ana.id) == 2


def test_what_is_deleted_is_not_found_although_the_engine_has_it(ana: Person, milvus: Any) -> None:
    create_searchable_document(ana.id, TEXTS[:2])
    gone = create_searchable_document(ana.id, TEXTS[2:])
    feed()

    services.delete(Document.objects.get(pk=gone))

    assert str(gone) not in {hit["document_id"] for hit in passages(ana, "dental cleanings")}
    assert (milvus.count_entries(ana.id), feed(), milvus.count_entries(ana.id)) == (4, 1, 2)


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
    calls.flush_call_records()
    assert all(each.endswith(" failed") for each in asked)
    assert VendorCall.objects.filter(outcome="VENDOR_UNREACHABLE").count() == 1  # then it is not asked for a while
    assert "PostgreSQL answers searches for a while." in caplog.text
    settings.MILVUS_URI = uri


def test_a_search_does_not_wait_long_for_an_engine_that_hangs(
    ana: Person, milvus: Any, milvus_server: Server, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    create_searchable_document(ana.id, TEXTS)
    feed()
    expected = passages(ana, "dental cleanings")
    monkeypatch.setattr(milvus, "SEARCH_SECONDS", 0.1)
    milvus._client.cache_clear()  # it hangs while the search connects
    asked.clear()

    os.kill(milvus_server.process.pid, signal.SIGSTOP)
    try:
        found = passages(ana, "dental cleanings")
    finally:
        os.kill(milvus_server.process.pid, signal.SIGCONT)

    assert found == expected
    assert asked[0] == "search_vectors failed"


def test_messages_wait_for_an_engine_that_is_away_and_are_never_given_up(
    ana: Person, milvus: Any, settings: Any
) -> None:
    documents = [create_searchable_document(ana.id, [text]) for text in TEXTS[:3]]
    uri, settings.MILVUS_URI = settings.MILVUS_URI, "http://127.0.0.1:9"
    Message.objects.update(attempts=50)

    assert feed() == 1  # the others wait with it

    (failed,) = Message.objects.filter(state="queued", due_at__gt=Now())
    assert failed.attempts == 51
    assert (feed(), Message.objects.count()) == (0, len(documents))
    settings.MILVUS_URI = uri
    Message.objects.filter(pk=failed.pk).update(due_at=Now())
    assert (feed(), Message.objects.count(), milvus.count_entries(ana.id)) == (3, 0, 3)


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

    assert milvus.count_entries(ana.id) == len(TEXTS)


def test_without_an_engine_nothing_is_written_for_it(ana: Person) -> None:
    create_searchable_document(ana.id, TEXTS)

    assert not Message.objects.exists()


def test_an_engine_that_was_never_built_is_not_asked(ana: Person, milvus: Any, asked: list[str]) -> None:
    """As where it is turned on beside documents: it would find none of them."""
    create_searchable_document(ana.id, TEXTS)
    Message.objects.all().delete()
    milvus.drop_collection()

    assert passages(ana, "dental cleanings")
    assert {each.removesuffix(" failed") for each in asked} != set(asked)
    with pytest.raises(CommandError, match="never built"):
        run_command("status")
    milvus.create_collection()


def test_a_rebuilt_engine_has_what_the_rows_hold(ana: Person, ben: Person, milvus: Any) -> None:
    document = create_searchable_document(ana.id, TEXTS)
    create_searchable_document(ben.id, TEXTS[:1])
    feed()
    assert "5 entries compared: 0 missing, 0 stale, 0 of tenants that are gone" in run_command("verify")
    delivery.send(ana.id, document, [], entries.read_entries(document)[0])
    stray = uuid4()
    delivery.send(stray, stray, entries.read_entries(document)[1], 1)
    with pytest.raises(CommandError, match="differs"):
        run_command("verify")
    assert maintenance.verify(ana.id).missing == {document: 4}

    assert "2 documents will be sent" in run_command("rebuild")

    assert maintenance.verify().is_clean  # what is not sent yet is no difference
    assert passages(ana, "dental cleanings")
    feed()
    assert "5 entries compared: 0 missing, 0 stale, 0 of tenants that are gone" in run_command("verify")
    assert "has 5 entries" in run_command("status")


def test_one_tenant_is_rebuilt_alone(ana: Person, ben: Person, milvus: Any) -> None:
    for person in (ana, ben):
        create_searchable_document(person.id, TEXTS[:2])
    feed()

    assert maintenance.rebuild(ana.id) == 1

    assert (milvus.count_entries(ana.id), milvus.count_entries(ben.id)) == (0, 2)
    assert passages(ana, "deductible")
    feed()
    assert maintenance.verify().is_clean
    assert milvus.count_entries() == 4


def test_a_campaign_is_cut_over_at_once_on_the_engine_too(ana: Person, milvus: Any, settings: Any) -> None:
    settings.EMBEDDER = "local"
    uploaded = ana.ingest(plan_pdf("hospital care", "drugs", "dental care"))
    feed()
    old = passages(ana, "hospital", mode="vector")

    recording_embedder(settings)
    reembed(uploaded)
    worker.drain()
    feed()
    assert milvus.count_entries(ana.id) == 2 * DocumentChunk.objects.count()
    assert passages(ana, "hospital", mode="vector") == old
    ActiveModel.objects.filter(pk=ana.id).update(embed_model=TARGET.model, embed_version=TARGET.version, shadowed=True)
    shadowed = passages(ana, "hospital", mode="vector")
    assert shadowed
    assert shadowed != old
    settings.SEARCH_ENGINE = "postgres"
    assert passages(ana, "hospital", mode="vector") == shadowed
    settings.SEARCH_ENGINE = "milvus"

    while shadow_vectors.settle_shadow_vectors(ana.id, TARGET):
        assert maintenance.verify().is_clean
    feed()

    assert passages(ana, "hospital", mode="vector") == shadowed
    assert maintenance.verify().is_clean
    assert milvus.count_entries(ana.id) == DocumentChunk.objects.count()


def test_the_engine_keeps_nothing_of_a_deleted_account(
    ana: Person, ben: Person, milvus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for person in (ana, ben):
        create_searchable_document(person.id, TEXTS[:2])
    feed()
    count = milvus.count_entries

    def count_beside_another_cluster(user_id: UUID) -> int:
        monkeypatch.setattr(milvus, "count_entries", count)
        entries = count(user_id)
        run_concurrently(account_deletion.advance_deletions)
        return int(entries)

    monkeypatch.setattr(milvus, "count_entries", count_beside_another_cluster)
    deletion = account_deletion.request_deletion(ana.user, by=ana.user, reason="By its owner.")

    for _ in range(2):
        account_deletion.advance_deletions()
        ObjectDeletion.objects.update(drop_after=Now() - timedelta(seconds=1))
        periodic.delete_removed_objects()
    deletion.refresh_from_db()
    assert deletion.completed_at is None  # until what is on its way has arrived
    feed()
    account_deletion.advance_deletions()

    deletion.refresh_from_db()
    assert deletion.completed_at is not None
    assert deletion.deleted["search_engine"] == 2
    assert (milvus.count_entries(ana.id), milvus.count_entries(ben.id)) == (0, 2)


def test_each_tenant_finds_its_own_alone(milvus: Any, settings: Any) -> None:
    people = [uuid4() for _ in range(TENANTS)]
    for person in people:
        create_searchable_document(person, [f"Dental care of {person} is free.", "Drugs cost ten dollars."])
    feed()
    embedder = registry.get_embedder(settings.EMBEDDER)
    model, vector = EmbeddingModel(embedder.model, embedder.version), embedder.embed(["dental care"])[0]
    owners = dict(DocumentChunk.objects.values_list("pk", "user_id"))

    for person in people:
        hits = hybrid_search.search(user_id=person, query="dental care", k=50)
        assert {owners[hit.chunk_id] for hit in hits} == {person}
        nearest = milvus.search_vectors(person, model, vector, 50)
        assert {owners[each] for each in nearest} == {person}


@hypothesis.given(query=st.text(min_size=1, max_size=60))
@hypothesis.settings(max_examples=FUZZ_CASES, suppress_health_check=list(hypothesis.HealthCheck))
def test_any_text_is_answered_alike_by_both_engines(query: str, ana: Person, milvus: Any, settings: Any) -> None:
    if not DocumentChunk.objects.exists():
        create_searchable_document(ana.id, TEXTS)
        feed()

    found = []
    for engine in ("milvus", "postgres"):
        settings.SEARCH_ENGINE = engine
        answer = ana.post("/search", {"query": query})
        found.append((answer.status_code, answer.json()))

    assert found[0] == found[1]


def test_an_engine_that_was_switched_off_is_sent_nothing(ana: Person, milvus: Any, settings: Any) -> None:
    create_searchable_document(ana.id, TEXTS)
    assert "has nothing any more" in run_command("drop")
    settings.SEARCH_ENGINE = "postgres"

    assert feed() == 1

    assert not Message.objects.exists()
    assert not milvus.is_built()
    settings.SEARCH_ENGINE = "milvus"
    milvus.create_collection()


def run_command(action: str) -> str:
    output = StringIO()
    call_command("search_engine", action, stdout=output)
    return output.getvalue()


def queries(engine: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    embedder = registry.get_embedder("local")
    model = EmbeddingModel(embedder.model, embedder.version)
    vector = embedder.embed(["dental cleanings"])[0].tolist()
    return (model, engine.DENSE, vector), (model, engine.WORDS, engine.sparse_vector({"dental": 1.0}))
