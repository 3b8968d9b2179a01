"""Rows of tables: their words with column heads, their postings, their rank, and how a search shows them."""

import time
from uuid import UUID

import numpy as np
import pytest

from accounts.rls import as_tenant
from embeddings import active_model
from embeddings.models import DocumentTerm
from embeddings.search import bm25, postings
from embeddings.search.fusion import LEAST_ROW_SHARE
from embeddings.search.hybrid_search import search
from embeddings.search.lexemes import query_lexemes
from embeddings.search.postings import EVERY_CHUNK, ROW_POSTING
from embeddings.search.table_rows import MAX_HEAD_CHARS, table_rows
from embeddings.search.vector_search import Scope
from testing.factories.searchable_documents import create_searchable_document, create_searchable_markdown
from testing.personas import Person

COPAYS = (
    "# Copays\n\n| Service | In network | Out of network |\n|---|---|---|\n"
    "| Specialist visit | $60 copay | 40 % after deductible |\n| Urgent care | $75 copay | $110 copay |"
)


def texts(markdown: str) -> list[str]:
    return [row.text for row in table_rows(markdown)]


def test_a_row_is_its_label_and_its_cells_with_their_column_heads() -> None:
    assert [(row.title, row.text) for row in table_rows(COPAYS)] == [
        ("Copays", "Specialist visit — In network: $60 copay; Out of network: 40 % after deductible"),
        ("Copays", "Urgent care — In network: $75 copay; Out of network: $110 copay"),
    ]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("| Office | Office | Office |\n| Visit | $1 | $2 |", ["Office", "Office Visit — a: $1; b: $2"]),
        ("| Office | | |\n| Visit | $1 | $2 |", ["Office", "Office Visit — a: $1; b: $2"]),
        ("| Visit | $1 | $2 |\n| | $3 | $4 |", ["Visit — a: $1; b: $2", "Visit — a: $3; b: $4"]),
        ("| Visit | | $2 |", ["Visit — b: $2"]),
        ("| | order | |\n| Visit | $1 | $2 |", [" — a: order", "Visit — a: $1; b: $2"]),
        ("| Visit | $1 | $2 | $3 |\n| Stay | $4", ["Visit — a: $1; b: $2; $3", "Stay — a: $4"]),
        (r"| this \| that | $1 | $2 |", [r"this \| that — a: $1; b: $2"]),
        ("Visit | $1 | $2", ["Visit — a: $1; b: $2"]),
        ("| | | |\n|", []),
    ],
)
def test_groups_gaps_and_ragged_rows(rows: str, expected: list[str]) -> None:
    assert texts(f"| what | a | b |\n|---|---|---|\n{rows}") == expected


def test_a_table_without_words_above_its_columns_has_rows_without_heads() -> None:
    assert texts("| | |\n|---|---|\n| Visit | $1 |") == ["Visit — $1"]


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("| Tier | Near | Far |", "1 — Retail, Near: $3; Retail, Far: $9"),
        ("| Tier | $1 | $2 |", "1 — Retail: $3; Retail: $9"),
        ("| 0 | Near | Far |", "1 — Retail: $3; Retail: $9"),
        ("| Tier | Near | |", "1 — Retail: $3; Retail: $9"),
    ],
)
def test_a_second_line_of_heads_names_the_columns_that_share_a_head(first: str, expected: str) -> None:
    rows = list(table_rows(f"| Tier | Retail | Retail |\n|---|---|---|\n{first}\n| 1 | $3 | $9 |"))

    assert [row.is_head for row in rows] == [", Near" in expected, False]
    assert rows[1].text == expected


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("| Deductible | $4,500 |\n|---|---|\n| Copay | $75 |", ["Deductible — $4,500", "Copay — $75"]),
        ("| **Starts** | **01/01/2026** |\n|---|---|\n| Share | 30% |", ["**Starts** — **01/01/2026**", "Share — 30%"]),
        ("| Age | 2026 |\n|---|---|\n| 40 | $75 |", ["40 — 2026: $75"]),
        ("| Age | $500 | $900 |\n|---|---|---|\n| 40 | $75 | $50 |", ["40 — $500: $75; $900: $50"]),
    ],
)
def test_two_columns_headed_by_a_value_have_no_heads(table: str, expected: list[str]) -> None:
    assert texts(table) == expected


def test_the_only_head_is_the_first_group() -> None:
    table = "| Not covered | | |\n|---|---|---|\n| Wigs | Spas | Gyms |\n| Covered | | |\n| Aids | Casts | |"

    assert texts(table) == ["Not covered Wigs — Spas; Gyms", "Covered", "Covered Aids — Casts"]


def test_rows_in_code_are_none() -> None:
    assert texts("```\n| a | b |\n|---|---|\n| 1 | 2 |\n```") == []


@pytest.mark.parametrize(
    "table",
    [
        "| a | b |\n|---|---|\n" + "| one | two |\n" * 10_000,
        "| h " * 300 + "|\n" + "|---" * 300 + "|\n" + ("| x " * 300 + "|\n") * 100,
        "| a |\n|---|\n" + ("| " + "word " * 20_000 + "|\n") * 10,
        "| " + "head " * 20_000 + "| b |\n|---|---|\n" + "| x | y |\n" * 10_000,
        "| a | b |\n|---|---|\n" + r"\|" * 200_000,
        "| a | b |\n|---|---|\n" + "|" * 300_000,
        "| a |\n|---|\n" * 20_000,
        "> | a |\n> |---|\n" * 20_000,
    ],
)
def test_hostile_tables_are_read_in_linear_time(table: str) -> None:
    began = time.process_time()
    total = sum(len(text) for text in texts(table))

    assert time.process_time() - began < 3
    assert total < len(table) + (MAX_HEAD_CHARS + 4) * table.count("|")


# The index


def scores(user_id: UUID, query: str) -> list[bm25.TextHit]:
    scope = Scope(user_id, active_model.active_model(user_id))
    with as_tenant(user_id):
        return bm25.search_bm25(scope, query_lexemes(query), 50)


@pytest.mark.django_db
def test_each_row_has_postings_of_its_own_and_of_its_heads(ana: Person) -> None:
    create_searchable_document(ana.id, ["prose about copays", COPAYS])
    terms = DocumentTerm.objects.exclude(row_postings=None)
    found = {each.term: np.frombuffer(each.row_postings or b"", ROW_POSTING)[["ord", "row"]].tolist() for each in terms}

    assert found["specialist"] == [(1, 0)]
    assert found["110"] == [(1, 1)]
    assert found["network"] == found[EVERY_CHUNK] == [(1, 0), (1, 1)]
    assert "prose" not in found


@pytest.mark.django_db
def test_a_document_without_a_table_has_no_row_postings(ana: Person) -> None:
    create_searchable_document(ana.id, ["either | or", "zebra"])

    assert not DocumentTerm.objects.exclude(row_postings=None).exists()


@pytest.mark.django_db
def test_the_best_row_is_named_with_its_share_of_the_query(ana: Person) -> None:
    create_searchable_document(ana.id, ["zebra", COPAYS, "kiwi"])

    (whole,) = scores(ana.id, "urgent care network")
    (half, *_) = scores(ana.id, "specialist zebra")
    (other,) = scores(ana.id, "kiwi")

    assert whole.row is not None
    assert (whole.row.number, round(whole.row.share, 3)) == (1, 1.0)
    assert half.row is None or half.row.share < LEAST_ROW_SHARE
    assert other.row is None


@pytest.mark.django_db
def test_another_tenants_rows_change_nothing(ana: Person, ben: Person) -> None:
    create_searchable_document(ana.id, ["zebra", COPAYS])
    before = scores(ana.id, "urgent care out of network")
    create_searchable_document(ben.id, [COPAYS] * 20)

    assert scores(ana.id, "urgent care out of network") == before


@pytest.mark.django_db
def test_a_words_rows_count_towards_the_postings_that_a_search_reads(
    ana: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_searchable_document(ana.id, [COPAYS, "urgent"])
    monkeypatch.setattr(postings, "MAX_POSTINGS", 3)  # urgent: 2 chunks and a row; network: a chunk and 2 rows

    assert {hit.row for hit in scores(ana.id, "urgent network")} == {hit.row for hit in scores(ana.id, "network")}


@pytest.mark.django_db
def test_a_head_that_is_cut_within_a_word_is_indexed(ana: Person) -> None:
    head = "network " * 12 + "deductibles"  # longer than heads are in rows: its last word is another one there
    create_searchable_document(ana.id, ["zebra", f"| what | {head} |\n|---|---|\n| Visit | $1 |"])

    assert scores(ana.id, "visit deduct")[0].row is not None


# Search


@pytest.mark.django_db
def test_the_passage_with_the_row_comes_before_one_that_has_the_words_in_many_places(ana: Person) -> None:
    scattered = (
        "Specialist care is described here, a visit or two, and what is out of the network; the network is large. "
        "Out of pocket: specialist, specialist, visit, network."
    )
    filler = ["Claims are paid within thirty days.", "Appeals go to the board.", "Forms are on the web site."]
    document_id = create_searchable_document(ana.id, [scattered, COPAYS, *filler])

    first, *_ = search(
        user_id=ana.id, query="specialist visit out of network", document_ids=[document_id], reranks=False
    )

    assert first.text == COPAYS
    assert first.parts.row is not None
    assert (first.parts.row.rank, first.parts.row.number) == (1, 0)
    assert first.snippet_text == texts(COPAYS)[0]


@pytest.mark.django_db
def test_api_and_page_show_the_row_as_a_table(ana: Person) -> None:
    create_searchable_markdown(ana.id, f"{COPAYS}\n\nSpecialists need no referral.", filename="plan.pdf")
    create_searchable_markdown(ana.id, "Appeals go to the board.", filename="other.pdf")

    body = ana.post("/search", {"query": "copay for urgent care out of network"}).json()["passages"]
    ana.client.force_login(ana.user)
    page = ana.client.post("/find", {"query": "copay for urgent care out of network"})

    assert body[0]["snippet_text"] == texts(COPAYS)[1]
    assert body[0]["parts"]["row"]["number"] == 1
    assert "—" not in body[0]["text"]
    assert body[1]["parts"]["row"] is None
    assert "<th>Out of network</th>" in body[0]["snippet_html"]
    assert "<td><mark>$110 copay</mark></td>" in page.content.decode()
