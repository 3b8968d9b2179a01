"""Sentence vectors: made in the background, one text once, copied, replaced and deleted with their passages."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from django.db import connection

from accounts.rls import as_tenant
from accounts.system_tenant import SYSTEM_TENANT_ID
from documents.models import Document
from embeddings import chunk_store, sentence_vectors
from embeddings.chunking.chunkers import Chunk
from embeddings.embedders import registry
from embeddings.embedders.registry import Vectors
from embeddings.models import DocumentChunk, SentenceVectors
from embeddings.search.fusion import RankedChunk, ScoreParts
from embeddings.search.hybrid_search import search
from embeddings.search.results import fetch_chunks
from jobs.cluster import shared_state
from jobs.models import UploadJob
from testing.embedders import WordEmbedder
from testing.factories.searchable_documents import create_searchable_document
from testing.personas import Person, plan_pdf

pytestmark = pytest.mark.django_db

TEXTS = ["Crowns are paid.", "Eye glasses cost $20. Frames are free.", "Call us on Mondays."]
UNREADABLE = "unreadable"


class RecordingEmbedder(WordEmbedder):
    """Records the passages that were embedded, a list of sentences each."""

    calls: list[Sequence[str]]

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.calls.append(texts)
        if UNREADABLE in texts[0]:
            raise ValueError(texts)
        return super().embed(texts)


@pytest.fixture(autouse=True)
def calls(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Sequence[str]]]:
    registry.get_embedder.cache_clear()
    registry.find_error.cache_clear()
    monkeypatch.setattr(sentence_vectors, "_checked_models", set())
    monkeypatch.setattr(sentence_vectors, "_failures", {})
    monkeypatch.setattr(RecordingEmbedder, "calls", [], raising=False)
    settings.SENTENCE_MODEL = f"{__name__}.RecordingEmbedder"
    yield RecordingEmbedder.calls
    registry.get_embedder.cache_clear()
    registry.find_error.cache_clear()


def stored() -> dict[str, bytes | None]:
    """Return the vectors by the text of their passage."""
    with_text = DocumentChunk.objects.in_bulk(SentenceVectors.objects.values_list("pk", flat=True))
    return {
        with_text[each.pk].text: each.vectors if each.vectors is None else bytes(each.vectors)
        for each in SentenceVectors.objects.all()
    }


def replace_texts(document_id: UUID, texts: Sequence[str], *, label: str = chunk_store.CHUNKS_VERSION) -> None:
    """Give a document other passages, as its job does."""
    user_id = Document.objects.get(pk=document_id).user_id
    chunks = [Chunk(at, text, at, at + 1, (1, 1), (), tokens=1) for at, text in enumerate(texts)]
    chunk_store.buffer_chunks(user_id=user_id, document_id=document_id, chunks=chunks, chunks_version=label)
    chunk_store.commit_chunks(document_id, chunks_version=label)
    chunk_store.replace_other_chunks(document_id, chunks_version=label)


def test_a_document_is_searchable_before_its_sentences_are_embedded(ana: Person, calls: list[Sequence[str]]) -> None:
    uploaded = ana.ingest(plan_pdf("hospital care", "drugs"))

    assert uploaded.job.state == "done"
    assert search(user_id=ana.id, query="hospital care")
    assert calls == []
    passages = DocumentChunk.objects.filter(document_id=uploaded.document_id).count()
    assert sentence_vectors.count_pending() == passages

    assert sentence_vectors.embed_pending() == passages
    assert sentence_vectors.count_pending() == 0
    assert sentence_vectors.embed_pending() == 0
    assert search(user_id=ana.id, query="hospital care")
    assert calls[-1] == ["hospital care"]

    ana.delete(f"/documents/{uploaded.document_id}")
    assert not SentenceVectors.objects.exists()


def test_a_passage_has_a_vector_of_each_sentence(ana: Person) -> None:
    create_searchable_document(ana.id, TEXTS)

    sentence_vectors.embed_pending()

    (vectors,) = [found for text, found in stored().items() if text == TEXTS[1]]
    assert vectors is not None
    sentences = WordEmbedder().embed(["Eye glasses cost $20.", "Frames are free."])[:, :384]
    asked = WordEmbedder().embed(["frames"])[0, :384]
    np.testing.assert_allclose(sentence_vectors.similarities(vectors, asked), sentences @ asked, atol=0.01)


def test_an_interrupted_round_is_continued(
    ana: Person, calls: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    create_searchable_document(ana.id, TEXTS)
    stops = iter([False, True])
    monkeypatch.setattr(shared_state, "is_stopping", lambda: next(stops, False))

    assert sentence_vectors.embed_pending() == 1
    assert sentence_vectors.count_pending() == 2
    assert sentence_vectors.embed_pending() == 2
    assert len(calls) == len(TEXTS)


@pytest.mark.parametrize(("across_tenants", "times"), [(False, 2), (True, 1)])
def test_a_text_is_embedded_once_for_a_tenant_or_for_all(
    ana: Person, ben: Person, settings: Any, calls: list[Sequence[str]], *, across_tenants: bool, times: int
) -> None:
    settings.REUSE_ACROSS_TENANTS = across_tenants
    for user_id in (ana.id, ana.id, ben.id):
        create_searchable_document(user_id, TEXTS[:1] * 2)

    sentence_vectors.embed_pending()

    assert calls == [[TEXTS[0]]] * times
    assert SentenceVectors.objects.exclude(vectors=None).count() == 6


@pytest.mark.parametrize("label", [chunk_store.CHUNKS_VERSION, "another@1"])
def test_texts_that_moved_to_other_passages_keep_their_vectors(
    ana: Person, calls: list[Sequence[str]], label: str
) -> None:
    document_id = create_searchable_document(ana.id, TEXTS)
    sentence_vectors.embed_pending()
    before = stored()

    replace_texts(document_id, ["A new page.", *TEXTS[:2]], label=label)

    assert stored() == {text: before[text] for text in TEXTS[:2]} | {"A new page.": None}
    calls.clear()
    sentence_vectors.embed_pending()
    assert calls == [["A new page."]]


def test_vectors_of_another_text_or_model_are_not_used(ana: Person) -> None:
    create_searchable_document(ana.id, TEXTS)
    sentence_vectors.embed_pending()
    ranking = [
        RankedChunk(each, 1.0, ScoreParts(None, None)) for each in DocumentChunk.objects.values_list("pk", flat=True)
    ]

    def used() -> int:
        with as_tenant(ana.id):
            found = fetch_chunks(ana.id, ranking, sentence_vectors.model_label())
        return sum(each.sentence_vectors is not None for each in found)

    assert used() == 3
    DocumentChunk.objects.filter(text=TEXTS[0]).update(chunk_sha="of another text")
    assert used() == 2
    SentenceVectors.objects.update(model="another@1")
    assert used() == 0


def test_a_changed_model_embeds_every_passage_again(ana: Person, calls: list[Sequence[str]]) -> None:
    create_searchable_document(ana.id, TEXTS)
    sentence_vectors.embed_pending()
    SentenceVectors.objects.update(model="another@1")
    calls.clear()

    sentence_vectors.enqueue_missing()

    assert sentence_vectors.count_pending() == len(TEXTS)
    sentence_vectors.embed_pending()
    assert len(calls) == len(TEXTS)


def test_statutes_and_passages_that_are_prepared_have_none(ana: Person) -> None:
    create_searchable_document(SYSTEM_TENANT_ID, TEXTS)
    document_id = create_searchable_document(ana.id, TEXTS)
    DocumentChunk.objects.filter(document_id=document_id).update(chunker_version="prepared")

    sentence_vectors.enqueue_missing()

    assert not SentenceVectors.objects.exists()


def test_without_a_sentence_model_nothing_is_written_or_read(ana: Person, settings: Any) -> None:
    document_id = create_searchable_document(ana.id, TEXTS)
    settings.SENTENCE_MODEL = "none"

    replace_texts(document_id, TEXTS[:1])
    sentence_vectors.start_embedding()

    assert sentence_vectors.embed_pending() == sentence_vectors.count_pending() == 0
    assert not SentenceVectors.objects.exists()
    assert search(user_id=ana.id, query="crowns")


def test_a_passage_that_cannot_be_embedded_stops_no_other(ana: Person, calls: list[Sequence[str]]) -> None:
    create_searchable_document(ana.id, [UNREADABLE, *TEXTS])

    sentence_vectors.embed_pending()

    assert [text for text, vectors in stored().items() if not vectors] == [UNREADABLE]
    assert sentence_vectors.count_pending() == 0
    assert search(user_id=ana.id, query="crowns frames")


def test_a_model_that_fails_leaves_the_passages_for_later(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    create_searchable_document(ana.id, TEXTS)
    with monkeypatch.context() as patched:
        patched.setattr(RecordingEmbedder, "embed", raise_memory_error)
        with pytest.raises(MemoryError):
            sentence_vectors.embed_pending()
    assert sentence_vectors.count_pending() == len(TEXTS)

    assert sentence_vectors.embed_pending() == len(TEXTS)


def raise_memory_error(*_: object) -> None:
    raise MemoryError


def test_a_question_that_the_model_cannot_embed_is_ranked_without_it(
    ana: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_searchable_document(ana.id, TEXTS)
    sentence_vectors.embed_pending()
    tries: list[object] = []

    def fail(*_: object) -> None:
        tries.append(None)
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(RecordingEmbedder, "embed", fail)
        for _ in range(2):
            assert search(user_id=ana.id, query="crowns")[0].text == TEXTS[0]
    assert len(tries) == 1

    monkeypatch.setattr(sentence_vectors, "RETRY_SECONDS", 0)
    assert sentence_vectors.embed_question("crowns") is not None


@pytest.mark.parametrize(
    "name", ["no.such.Model", "embeddings.embedders.registry.EmbeddingModel", "builtins.object", "builtins.int."]
)
def test_a_name_of_no_model_ends_neither_cluster_nor_search(ana: Person, settings: Any, name: str) -> None:
    document_id = create_searchable_document(ana.id, TEXTS)
    sentence_vectors.embed_pending()
    settings.SENTENCE_MODEL = name

    sentence_vectors.start_embedding()
    replace_texts(document_id, TEXTS[:2])

    assert sentence_vectors.embed_pending() == sentence_vectors.count_pending() == 0
    assert search(user_id=ana.id, query="crowns")


def test_a_turn_reads_the_passages_of_the_turn(ana: Person) -> None:
    create_searchable_document(ana.id, [f"Text {number}." for number in range(20 * sentence_vectors.PASSAGES)])
    sentence_vectors.enqueue_missing()
    params: dict[str, Any] = {
        "user": ana.id,
        "model": sentence_vectors.model_label(),
        "most": sentence_vectors.PASSAGES,
    }

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE sentence_vectors, document_chunks")
        cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + sentence_vectors.NEXT_PASSAGES, params)
        (found,) = cursor.fetchone()

    assert rows_read(found[0]["Plan"], "document_chunks") == sentence_vectors.PASSAGES


def rows_read(plan: dict[str, Any], table: str) -> float:
    own = plan["Actual Rows"] * plan["Actual Loops"] if plan.get("Relation Name") == table else 0
    return float(own + sum(rows_read(each, table) for each in plan.get("Plans", ())))


EXIT_WHILE_EMBEDDING = """
import atexit, threading, time
import django
has_begun, may_end, calls = threading.Event(), threading.Event(), []
atexit.register(lambda: print(*calls))  # called last
django.setup()
from embeddings import sentence_vectors
from testing.embedders import WordEmbedder
atexit.register(may_end.set)  # called first
class SlowEmbedder(WordEmbedder):
    def embed(self, texts):
        calls.append("begins")
        has_begun.set()
        may_end.wait()
        time.sleep(0.1)
        calls.append("ends")
        return super().embed(texts)
def embed():
    while True:
        sentence_vectors._embed_safely(SlowEmbedder(), "Crowns are paid.")
threading.Thread(target=embed, daemon=True).start()
has_begun.wait()
"""


@pytest.mark.slow
def test_a_process_that_exits_waits_for_the_passage_at_hand() -> None:
    ended = subprocess.run([sys.executable, "-c", EXIT_WHILE_EMBEDDING], capture_output=True, text=True, timeout=120)

    assert (ended.returncode, ended.stdout.split()[-1:], ended.stderr) == (0, ["ends"], "")


def test_tenants_take_turns(
    ana: Person, ben: Person, calls: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentence_vectors, "PASSAGES", 1)
    create_searchable_document(ana.id, ["Ana one.", "Ana two."])
    create_searchable_document(ben.id, ["Ben one.", "Ben two."])

    sentence_vectors.embed_pending()

    names = [sentences[0].split()[0] for sentences in calls]
    assert names[0] != names[1]
    assert names[2] != names[3]


def test_jobs_come_first(ana: Person, calls: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    create_searchable_document(ana.id, TEXTS[:1])
    ana.upload(plan_pdf("drugs"))
    embedded_before: list[int] = []

    def pause(_: float) -> None:
        embedded_before.append(len(calls))
        UploadJob.objects.all().delete()

    # Not the module time itself: other threads sleep, too.
    monkeypatch.setattr(sentence_vectors, "time", SimpleNamespace(sleep=pause))

    assert sentence_vectors.embed_pending() == 1
    assert embedded_before == [0]


def test_jobs_that_are_always_due_hold_up_no_passage_for_good(
    ana: Person, ben: Person, calls: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for person in (ana, ben):
        create_searchable_document(person.id, [f"{person.id} has one.", f"{person.id} has two."])
    ben.upload(plan_pdf("drugs"))
    embedded_before: list[int] = []
    clock = SimpleNamespace(sleep=lambda _: embedded_before.append(len(calls)), monotonic=time.monotonic)
    monkeypatch.setattr(sentence_vectors, "time", clock)

    assert sentence_vectors.embed_pending() == 4

    assert embedded_before == [count for count in range(4) for _ in range(sentence_vectors.PAUSES)]
    owners = [sentences[0].split()[0] for sentences in calls]
    assert owners[0] != owners[1]  # no tenant waits for another's turn of sixteen
    assert owners[:2] == owners[2:]


def test_a_passage_deleted_by_sql_takes_its_sentence_vectors_along(ana: Person) -> None:
    create_searchable_document(ana.id, TEXTS)
    sentence_vectors.embed_pending()

    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM document_chunks WHERE text = %s", [TEXTS[0]])

    assert SentenceVectors.objects.count() == len(TEXTS) - 1
