"""The words of a document and BM25 over them, against the formula computed by hand."""

import random
from collections.abc import Sequence
from math import log
from uuid import UUID

import numpy as np
import pytest
from django.db import connection

from accounts.rls import as_tenant
from embeddings import active_model
from embeddings.models import DocumentChunk, DocumentTerm
from embeddings.search import bm25
from embeddings.search import postings as bm25_postings
from embeddings.search.lexemes import query_lexemes
from embeddings.search.postings import POSTING
from embeddings.search.vector_search import Scope
from testing.factories.searchable_documents import create_searchable_document
from testing.personas import Person

pytestmark = pytest.mark.django_db

# Words that the stemmer leaves as they are.
TEXTS = [
    "zebra zebra wig mango",
    "zebra mango mango mango kiwi kiwi",
    "wig kiwi " + "lemon " * 40,
    "lemon",
    "kiwi zebra " + "fig " * 300,
]


def expected_scores(texts: Sequence[str], query: str) -> list[float]:
    """By the book, with the product's frozen average."""
    split = [text.split() for text in texts]
    scores = [0.0] * len(texts)
    for word in set(query.split()):
        df = sum(word in passage for passage in split)
        idf = log(1 + (len(texts) - df + 0.5) / (df + 0.5))
        for at, passage in enumerate(split):
            tf = passage.count(word)
            # tsvector remembers 255 places of a word
            size = sum(min(255, passage.count(other)) for other in set(passage))
            scores[at] += idf * tf * 2.5 / (tf + 1.5 * (0.25 + 0.75 * size / bm25.AVERAGE_LENGTH))
    return scores


def bm25_scores(user_id: UUID, query: str, n: int = 50) -> list[tuple[str, float]]:
    scope = Scope(user_id, active_model.active_model(user_id))
    with as_tenant(user_id):
        matches = bm25.search_bm25(scope, query_lexemes(query), n)
    texts = dict(DocumentChunk.objects.values_list("pk", "text"))
    return [(texts[match.chunk_id], match.bm25) for match in matches]


def test_scores_are_those_of_the_formula(ana: Person) -> None:
    create_searchable_document(ana.id, TEXTS[:2])
    create_searchable_document(ana.id, TEXTS[2:])

    for query in ("zebra", "wig mango", "kiwi lemon zebra fig", "fig fig"):
        expected = {text: score for text, score in zip(TEXTS, expected_scores(TEXTS, query), strict=True) if score}

        assert dict(bm25_scores(ana.id, query)) == pytest.approx(expected, abs=0.005), query


def test_best_chunks_come_first_and_n_limits_them(ana: Person) -> None:
    create_searchable_document(ana.id, TEXTS)

    ranked = [text for text, _ in bm25_scores(ana.id, "zebra kiwi")]

    assert ranked == sorted(ranked, key=lambda text: -expected_scores(TEXTS, "zebra kiwi")[TEXTS.index(text)])
    assert [text for text, _ in bm25_scores(ana.id, "zebra kiwi", n=2)] == ranked[:2]


def test_another_tenants_documents_change_nothing(ana: Person, ben: Person) -> None:
    create_searchable_document(ana.id, TEXTS)
    before = bm25_scores(ana.id, "zebra wig")
    scope = Scope(ana.id, active_model.active_model(ana.id))

    create_searchable_document(ben.id, ["zebra wig"] * 30)

    assert bm25_scores(ana.id, "zebra wig") == before
    # And as the application's role, for which no policy hides Ben's rows.
    assert [match.bm25 for match in bm25.search_bm25(scope, ["zebra", "wig"], 50)] == [score for _, score in before]


def test_a_word_of_the_heading_counts_twice(ana: Person) -> None:
    create_searchable_document(ana.id, ["mango kiwi", "wig fig"], headings=[["wig"], ["lemon"]])

    (first, _), (second, _) = bm25_scores(ana.id, "wig")

    assert (first, second) == ("mango kiwi", "wig fig")


def test_the_formula_holds_over_many_documents_and_common_words(ana: Person) -> None:
    chance = random.Random(5)
    vocabulary = [f"qz{number}x" for number in range(40)]
    weights = [1 / (rank + 1) for rank in range(40)]
    texts = [" ".join([*chance.choices(vocabulary, weights, k=chance.randint(5, 60)), f"qw{n}"]) for n in range(120)]
    for start in range(0, 120, 30):
        create_searchable_document(ana.id, texts[start : start + 30])

    for query in [" ".join(chance.sample(vocabulary, 4)) for _ in range(15)] + ["qz0x qz39x", "qz0x qz1x", "qz0x"]:
        expected = {text: score for text, score in zip(texts, expected_scores(texts, query), strict=True) if score}
        ranked = bm25_scores(ana.id, query, n=120)

        assert dict(ranked) == pytest.approx(expected, abs=0.005), query
        assert bm25_scores(ana.id, query, n=8) == ranked[:8]


def test_equal_scores_are_ordered_by_document_and_ordinal(ana: Person) -> None:
    for _ in range(2):
        create_searchable_document(ana.id, ["zebra"] * 30)
    scope = Scope(ana.id, active_model.active_model(ana.id))

    few, every = ([match.chunk_id for match in bm25.search_bm25(scope, ["zebra"], n)] for n in (5, 100))

    assert every == list(DocumentChunk.objects.order_by("document_id", "chunk_ord").values_list("pk", flat=True))
    assert few == every[:5]


def test_only_the_rarest_words_are_scored_above_the_postings_limit(
    ana: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_searchable_document(ana.id, ["zebra"] * 8 + ["wig"] * 40 + ["zebra wig"] + ["fig"] * 60)
    monkeypatch.setattr(bm25_postings, "MAX_POSTINGS", 9)

    few = bm25_scores(ana.id, "zebra wig")

    assert {text for text, _ in few} == {"zebra", "zebra wig"}
    assert len(few) == 9


def test_filtered_chunk_is_found_however_low_it_ranks(ana: Person) -> None:
    create_searchable_document(ana.id, [f"zebra {'fig ' * (number % 7)}" for number in range(400)])
    scope = Scope(ana.id, active_model.active_model(ana.id), conditions=(("c.chunk_ord = %(wanted)s", {"wanted": 6}),))

    with as_tenant(ana.id):
        matches = bm25.search_bm25(scope, ["zebra"], 3)

    assert len(matches) == 1


def test_unsearchable_postings_take_no_result_slot(ana: Person) -> None:
    create_searchable_document(ana.id, ["zebra", "zebra", "zebra wig"])
    bare(ord=0)

    assert [text for text, _ in bm25_scores(ana.id, "zebra", n=2)] == ["zebra", "zebra wig"]


def rows() -> list[tuple[str, list[int], list[int]]]:
    indexed = DocumentTerm.objects.exclude(term__startswith=bm25_postings.NAME_PREFIX)
    stored = indexed.order_by("document_id", "term").values_list("term", "postings")
    read = [(term, np.frombuffer(postings, POSTING)) for term, postings in stored]
    return [(term, places["ord"].tolist(), places["impact"].tolist()) for term, places in read]


def test_indexing_again_replaces_the_postings(ana: Person) -> None:
    document_id = create_searchable_document(ana.id, ["zebra wig", "wig"])
    before = rows()
    bm25.index_document(document_id)
    assert rows() == before

    with connection.cursor() as cursor:
        cursor.execute("UPDATE document_chunks SET text = 'mango' WHERE chunk_ord = 1")
        cursor.execute("DELETE FROM document_chunks WHERE chunk_ord = 0")
    bm25.index_document(document_id)

    assert [(term, ords) for term, ords, _ in rows()] == [("", [1]), ("mango", [1])]


def test_chunks_without_a_vector_are_not_indexed(ana: Person) -> None:
    document_id = create_searchable_document(ana.id, ["zebra wig", "wig"])
    bare(ord=1)

    bm25.index_document(document_id)

    assert [(term, ords) for term, ords, _ in rows()] == [("", [0]), ("wig", [0]), ("zebra", [0])]


def test_indexed_chunk_without_vector_is_not_found(ana: Person) -> None:
    create_searchable_document(ana.id, ["zebra wig", "wig"])
    bare(ord=0)

    assert [text for text, _ in bm25_scores(ana.id, "wig zebra")] == ["wig"]


def bare(*, ord: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE document_chunks SET embed_model = NULL, embed_version = NULL, vector_dim = NULL, vector_sha = NULL,"
            " embed_updated_at = NULL, embedding = NULL WHERE chunk_ord = %s",
            [ord],
        )


def test_impacts_stay_small_for_any_text(ana: Person) -> None:
    create_searchable_document(
        ana.id,
        ["zebra " * 9_000, "", "- . !", "x" * 3_000, "🙂 שלום مرحبا"],
        headings=[["zebra"] * 500, [], [], [], []],
    )

    assert max(max(impacts) for _, _, impacts in rows()) <= (bm25.K1 + 1) * bm25.SCALE
    assert ("", [0, 1, 2, 3, 4], [0] * 5) in rows()


# Row-level security: the index serves under it


@pytest.mark.usefixtures("never_vacuumed")
def test_the_tenant_reads_its_words_through_the_index(ana: Person) -> None:
    create_searchable_document(ana.id, TEXTS)
    sql = "EXPLAIN SELECT postings FROM document_terms WHERE user_id = %s AND term = ANY(%s)"
    with as_tenant(ana.id), connection.cursor() as cursor:
        cursor.execute("SELECT row_security_active('document_terms'), set_config('enable_seqscan', 'off', true)")
        assert cursor.fetchone()[0]
        cursor.execute(sql, [ana.id, ["zebra", "wig"]])
        plan = " ".join(row[0] for row in cursor.fetchall())

    assert "document_terms_pkey" in plan
    assert "Seq Scan" not in plan
    condition = plan.partition("Index Cond:")[2]
    assert "user_id =" in condition
    assert "term = ANY" in condition
