"""Merged postings: search finds the same, with the same scores, as from postings that are not merged."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from django.db import DataError, connection, transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from accounts.rls import as_tenant
from documents.models import Document
from documents.services import TABLES
from embeddings import active_model
from embeddings.models import DocumentTerm, PostingBlock, PostingSegment
from embeddings.search import bm25, document_names, posting_segments
from embeddings.search.postings import DENSE_IMPACT, MERGED, SEGMENT_POSTING, read_postings
from embeddings.search.vector_search import Scope
from testing.factories.searchable_documents import create_searchable_document
from testing.personas import Person

pytestmark = pytest.mark.django_db
WORDS = ["zebra", "wig", "mango", "kiwi", "lemon", "fig"]
TABLE = "| wig | kiwi |\n|---|---|\n| mango | fig |\n| lemon | zebra |\n"


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting_segments, "MIN_DOCUMENTS", 2)
    monkeypatch.setattr(posting_segments, "MAX_SLOTS", 24)
    monkeypatch.setattr(posting_segments, "DELETED_MINUTES", 0)


def found(user_id: UUID, document_ids: Sequence[UUID] | None = None) -> list[Any]:
    """All that a query takes from the index of words, for several queries."""
    scope = Scope(user_id, active_model.active_model(user_id), tuple(document_ids) if document_ids else None)
    answers: list[Any] = []
    for words in (WORDS[:1], WORDS[1:4], WORDS, ["absent"]):
        with as_tenant(user_id):
            postings = read_postings(scope, words, document_names.split_words(" ".join(words)))
            names = document_names.score_names(postings)
            hits = bm25.rank_chunks(scope, postings, 30, names)
        named = {postings.document_id(at): names[at] for at in np.flatnonzero(names)}
        answers += [hits, named, bm25.inverse_frequencies(postings, words), bm25.best_coverage(postings, words)]
    return answers


def found_unmerged(user_id: UUID, document_ids: Sequence[UUID] | None = None) -> list[Any]:
    """Return the same with every document indexed again."""
    with transaction.atomic():
        for document_id in Document.objects.filter(user_id=user_id).values_list("pk", flat=True):
            bm25.index_document(document_id)
        assert not DocumentTerm.objects.filter(term=MERGED, user_id=user_id).exists()
        answers = found(user_id, document_ids)
        transaction.set_rollback(True)
    return answers


def delete(document_id: UUID) -> None:
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"DELETE FROM {table} WHERE document_id = %s", [document_id])


def rewrite(document_id: UUID, text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE document_chunks SET text = %s WHERE document_id = %s AND chunk_ord = 0", [text, document_id]
        )
    bm25.index_document(document_id)


def rename(document_id: UUID, name: str) -> None:
    Document.objects.filter(pk=document_id).update(filename=f"{name}.pdf")
    bm25.index_document(document_id)


TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join) | st.just(TABLE)
STEPS = st.lists(
    st.tuples(st.just("add"), st.lists(TEXTS, min_size=1, max_size=5), st.sampled_from(WORDS))
    | st.tuples(st.sampled_from(["delete", "rename", "rewrite"]), st.integers(0, 9), st.sampled_from(WORDS))
    | st.tuples(st.just("merge"), st.none(), st.none()),
    min_size=4,
    max_size=8,
)


@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
    derandomize=True,
)
@given(STEPS)
def test_merged_postings_are_scored_as_unmerged_ones(small_segments: None, db: None, steps: list[Any]) -> None:
    with transaction.atomic():
        user_id, documents = uuid4(), list[UUID]()
        for step, what, word in [("add", [TABLE, "zebra wig"], "fig"), ("add", ["zebra"] * 5, "wig"), *steps]:
            if step == "add":
                documents.append(create_searchable_document(user_id, what, filename=f"{word}.pdf"))
            elif step == "merge":
                merge_all(user_id)
            elif documents:
                document_id = documents[what % len(documents)]
                if step == "delete":
                    documents.remove(document_id)
                    delete(document_id)
                else:
                    {"rename": rename, "rewrite": rewrite}[step](document_id, word)

            if step in ("delete", "merge"):
                assert found(user_id) == found_unmerged(user_id)
        assert found(user_id) == found_unmerged(user_id)
        assert found(user_id, documents[:2]) == found_unmerged(user_id, documents[:2])
        transaction.set_rollback(True)


def merge_all(user_id: UUID) -> None:
    while posting_segments.merge_postings(user_id):
        pass


@pytest.fixture
def merged(ana: Person) -> list[UUID]:
    documents = [create_searchable_document(ana.id, [f"zebra {word}", TABLE], filename=f"{word}.pdf") for word in WORDS]
    merge_all(ana.id)
    return documents


def stored() -> list[Any]:
    return [list(model.objects.order_by("pk").values()) for model in (DocumentTerm, PostingSegment, PostingBlock)]


def test_a_merged_document_keeps_one_row_of_its_own(ana: Person, merged: list[UUID]) -> None:
    assert list(DocumentTerm.objects.values_list("term", flat=True)) == [MERGED] * len(merged)
    (segment,) = PostingSegment.objects.all()
    assert (segment.slots, segment.rows) == (12, 12)
    zebra = PostingBlock.objects.get(term="zebra")
    assert (zebra.size, len(zebra.postings)) == (12, 12 * DENSE_IMPACT.itemsize)
    wig = PostingBlock.objects.get(term="\x01wig")
    assert (wig.size, len(wig.postings)) == (1, SEGMENT_POSTING.itemsize)


def test_both_layers_of_tenancy_hold_for_merged_postings(ana: Person, ben: Person, merged: list[UUID]) -> None:
    before = found(ana.id)
    for _ in range(3):
        create_searchable_document(ben.id, ["zebra wig"])
    merge_all(ben.id)
    scope = Scope(ana.id, active_model.active_model(ana.id))

    with as_tenant(ben.id):
        guarded = read_postings(scope, WORDS)
        visible = set(PostingBlock.objects.values_list("user_id", flat=True))
        segments = set(PostingSegment.objects.values_list("user_id", flat=True))
    scoped = read_postings(scope, WORDS)  # as the application, for which no policy hides Ben's rows

    assert visible == segments == {ben.id}
    assert guarded.words == []
    assert scoped.document_count == len(merged)
    assert found(ana.id) == before


def test_large_documents_are_merged_a_few_at_a_time(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting_segments, "MIN_DOCUMENTS", 4)
    for chunks in (25, 10, 10, 10, 10):
        create_searchable_document(ana.id, ["zebra wig"] * chunks)
    before = found(ana.id)

    merge_all(ana.id)

    assert [segment.slots for segment in PostingSegment.objects.all()] == [20]
    assert found(ana.id) == before


def test_failed_merge_changes_nothing(ana: Person, merged: list[UUID], monkeypatch: pytest.MonkeyPatch) -> None:
    for word in WORDS[:3]:
        create_searchable_document(ana.id, [word])
    before = stored()
    monkeypatch.setattr(posting_segments, "MARK_MERGED", "SELECT 1 / 0")

    with pytest.raises(DataError):
        posting_segments.merge_postings(ana.id)

    assert stored() == before


def test_deleted_documents_leave_their_segment(ana: Person, merged: list[UUID]) -> None:
    for document_id in merged[:-1]:
        delete(document_id)
    before = found(ana.id)
    assert PostingSegment.objects.get().deleted_at

    posting_segments.merge_due()

    segment = PostingSegment.objects.get()
    assert (segment.slots, segment.deleted_documents, segment.deleted_at) == (2, [], None)
    assert set(PostingBlock.objects.filter(size=2).values_list("term", flat=True)) == {"zebra", WORDS[-1]}
    assert found(ana.id) == before

    delete(merged[-1])
    posting_segments.merge_due()

    assert stored() == [[], [], []]


@pytest.mark.django_db(transaction=True)
def test_a_merge_gives_way_to_a_transaction_that_deletes_a_document(ana: Person) -> None:
    documents = [create_searchable_document(ana.id, [word]) for word in WORDS]
    before = stored()

    with closing(connection.copy()) as other, other.cursor() as cursor:
        other.set_autocommit(False)
        cursor.execute("DELETE FROM document_terms WHERE document_id = %s", [documents[0]])
        posting_segments.merge_due()
        assert stored() == before
        other.rollback()
    posting_segments.merge_due()

    assert PostingSegment.objects.get().slots == len(documents)
