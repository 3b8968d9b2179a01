"""POST /search, whatever is sent: an answer or a stable code, never a 500."""

import json
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings

from accounts.errors import ApiError
from embeddings.search.hybrid_search import search
from testing.factories.searchable_documents import create_searchable_document
from testing.personas import Person

pytestmark = pytest.mark.django_db

TOO_MANY = [str(uuid4()) for _ in range(1001)]
HUGE = 10**400

BAD_PAGES: list[Any] = [
    3, "1-2", [], [1], [1, 2, 3], [2, 1], [0, 1], [-5, -1], [1, 10**30], ["1", "2"], [1.0, 2.0], [True, True],
    [None, 1], {"first": 1}, [[1], [2]],
]  # fmt: skip
BAD_TEXTS: list[Any] = [1, [], {}, "", " ", "a" * 1_001, "a\0", "\udfff"]
BAD_MOMENTS: list[Any] = [
    1, 20260131, [], {}, "", "yesterday", "2026-02-30", "2026-13-01", "2026-01-01T25:00", "1e9", "31.01.2026",
    "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "2026-01-01T00:00Zjunk",
]  # fmt: skip
BAD_TAGS: list[Any] = ["x", {}, [], ["x"], [None], [[]], [1], str(uuid4()), TOO_MANY[:51]]
BACKWARDS = {"uploaded_after": "2026-02-01", "uploaded_before": "2026-01-01"}
ID = "6c8a1e6e-1f0b-4aa8-9f0a-1a7c2e6f2b42"

# What is sent, the code, and the field that is named: each is sent beside a good query.
REFUSED: list[tuple[str, list[Any], str, str]] = [
    ("query", ["", "   ", "\n\t", "\u00a0\u2003", "-dental", '-"dental care" -eye'], "EMPTY_QUERY", "query"),
    ("query", [None, [], {}, ["x"], {"$ne": ""}, "a\0b", "\ud800"], "INVALID_REQUEST", "query"),
    ("query", ["a" * (settings.MAX_QUERY_CHARS + 1), "a" * 200_000], "QUERY_TOO_LONG", "query"),
    ("query", ["保険😀" * 3_000, "𓀀" * 7_000], "QUERY_TOO_LONG", "query"),
    ("k", [0, -1, settings.MAX_SEARCH_RESULTS + 1, 10**12, HUGE], "K_OUT_OF_RANGE", "k"),
    ("k", ["many", 1.5, None, [], {}], "INVALID_REQUEST", "k"),
    ("mode", ["fuzzy", "Hybrid", "hybrid;", "1", "ת"], "UNKNOWN_MODE", "mode"),
    ("mode", [None, [], {}, "", ["text"]], "INVALID_REQUEST", "mode"),
    ("merge", ["perhaps", [], {}, 7, None], "INVALID_REQUEST", "merge"),
    ("document_ids", ["x", {}, ["x"], [None], [[]], ID, TOO_MANY], "INVALID_REQUEST", "document_ids"),
    ("filters", [[], "pages", 3, True, [["pages", [1, 2]]]], "INVALID_FILTER", "filters"),
    ("filters", [{"page": [1, 2]}, {"user_id": "x"}, {"": 1}, {"pages": None, "k": 1}], "UNKNOWN_FILTER", "filters"),
    ("filters", [{"pages": pages} for pages in BAD_PAGES], "INVALID_FILTER", "filters.pages"),
    ("filters", [{"heading": text} for text in BAD_TEXTS], "INVALID_FILTER", "filters.heading"),
    ("filters", [{"filename": text} for text in BAD_TEXTS], "INVALID_FILTER", "filters.filename"),
    ("filters", [{"tags": ids} for ids in BAD_TAGS], "INVALID_FILTER", "filters.tags"),
    ("filters", [{"uploaded_after": moment} for moment in BAD_MOMENTS], "INVALID_FILTER", "filters.uploaded_after"),
    ("filters", [{"uploaded_before": moment} for moment in BAD_MOMENTS], "INVALID_FILTER", "filters.uploaded_before"),
    ("filters", [BACKWARDS], "INVALID_FILTER", "filters.uploaded_before"),
]  # fmt: skip


def answer(person: Person, body: dict[str, Any]) -> Any:
    return person.client.post("/search", json.dumps({"query": "x"} | body), content_type="application/json")


@pytest.mark.parametrize(("name", "values", "code", "field"), REFUSED)
def test_invalid_arguments_are_refused_by_field(
    name: str, values: list[Any], code: str, field: str, ana: Person
) -> None:
    for argument in values:
        refusal = answer(ana, {name: argument})

        body = refusal.json()
        assert (refusal.status_code, body.get("code"), body.get("field")) == (400, code, field), str(argument)[:200]
        assert set(body) == {"code", "detail", "field"}
        assert len(body["detail"]) < 300


TYPED = [
    "😀😀😀", "מה ההשתתפות העצמית?", "ما هو الخصم؟", "\u202eera latned", "自己負担額", "\u200b", "\x01\x02\x7f",
    "' OR 1=1; DROP TABLE documents; --", "<script>alert(1)</script>", "%s %(x)s {} {0} ${jndi:ldap://x}", "x" * 7_999,
    "\ufffd\uffff", "\U0001d56f\U0001d58a", "é" * 500, "\\u0000", "NaN", "the of and", "-", "--", "*",
    "1e309", '"', '""', '"dental', 'dental"', '"the of"', '-"', '-""', '"' * 3_001, '"a" ' * 1_500, "-a " * 2_000, "-5",
    "'dental'", "a -b " * 1_000, "!", "& | ! <-> :* ()", "\\", "a\\'b", "co-pay", "/etc/passwd", "http://x.y/?a=b",
    "a@b.c", "“in a row” -«not»", "\x02mark\x03", '-"a b" -c "d e" f', '"dental" ' * 20,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["hybrid", "text"])
def test_any_text_is_a_valid_query(mode: str, ana: Person) -> None:
    create_searchable_document(
        ana.id, ["Dental care is covered.", "Your copay for a visit, \\ 'quoted' %s {}."], headings=[["Dental"], []]
    )

    for query in TYPED:
        response = answer(ana, {"query": query, "mode": mode, "filters": {"heading": query[:1000].strip(" \0") or "x"}})
        assert response.status_code == 200, (query[:60], response.json())
        response = answer(ana, {"query": query, "mode": mode})
        assert response.status_code == 200, (query[:60], response.json())
        assert all(passage["score"] > 0 for passage in response.json()["passages"])


def test_stop_words_find_nothing_by_text_and_the_nearest_by_vector(ana: Person) -> None:
    create_searchable_document(ana.id, ["The care of it.", "And so on."])

    assert answer(ana, {"query": "the of and", "mode": "text"}).json() == {
        "passages": [],
        "records": [],
        "laws": [],
        "nearest": [],
    }
    assert len(answer(ana, {"query": "the of and"}).json()["nearest"]) == 2


def test_optional_arguments_may_be_null(ana: Person) -> None:
    nothing = dict.fromkeys(("pages", "heading", "filename", "tags", "uploaded_after", "uploaded_before"))

    for filters in ({}, None, nothing):
        assert answer(ana, {"filters": filters}).json() == {"passages": [], "records": [], "laws": [], "nearest": []}


def test_lone_surrogate_from_the_command_line_is_accepted(ana: Person) -> None:
    create_searchable_document(ana.id, ["Dental care is covered."])

    assert len(search(user_id=ana.id, query="dental \udcff\0")) == 1
    with pytest.raises(ApiError, match="EMPTY_QUERY"):
        search(user_id=ana.id, query="\0")


def test_nan_and_infinity_are_refused(ana: Person) -> None:
    for body in ('{"query": "x", "k": NaN}', '{"query": "x", "filters": {"pages": [Infinity, 1]}}', '{"query":', "[]"):
        refusal = ana.client.post("/search", body, content_type="application/json")

        assert refusal.status_code == 400
        assert refusal.json()["code"] in {"MALFORMED_JSON", "INVALID_REQUEST", "INVALID_FILTER"}
