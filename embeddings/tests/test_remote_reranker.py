"""The reranker over HTTP: two protocols, its price, and the local order where it fails."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from embeddings.search import remote_reranker
from embeddings.search.hybrid_search import search
from testing.factories.searchable_documents import create_searchable_document
from testing.fakes.reranker import KEY, MODEL, RerankerServer
from testing.personas import Person
from vendors.call_failures import InvalidResponse
from vendors.models import Purchase

TEXTS = ["The deductible is paid once.", "A deductible is a sum.", "Deductible, favourite."]


@pytest.fixture
def reranker(settings: Any) -> Iterator[RerankerServer]:
    with RerankerServer() as server:
        settings.RERANKER, settings.RERANKER_API_KEY = server.url, KEY
        yield server


def found(person: Person, **more: Any) -> list[str]:
    return [passage.text for passage in search(user_id=person.id, query="when is the deductible paid", **more)]


@pytest.mark.django_db
@pytest.mark.parametrize("model", [MODEL, ""])
def test_the_services_order_counts(model: str, ana: Person, reranker: RerankerServer, settings: Any) -> None:
    settings.RERANKER_MODEL = model
    create_searchable_document(ana.id, TEXTS, headings=[["Costs"]] * 3)

    assert found(ana)[0] == TEXTS[2]
    assert found(ana, k=1) == TEXTS[2:]
    assert f"Costs\n{TEXTS[0]}" in reranker.ledger.counts
    assert found(ana, mode="text")[0] == found(ana, reranks=False)[0] == TEXTS[0]
    assert reranker.ledger.calls == 2
    assert not Purchase.objects.exists()


@pytest.mark.django_db
def test_a_call_with_a_price_is_a_purchase_of_the_tenant(ana: Person, reranker: RerankerServer, settings: Any) -> None:
    settings.RERANKER_CENTS_PER_CALL = 0.2
    create_searchable_document(ana.id, TEXTS)

    found(ana)
    settings.TENANT_DAILY_CENTS = 0.3
    assert found(ana)[0] == TEXTS[0]  # the budget is spent: the local order

    purchase = Purchase.objects.get()
    assert (purchase.user_id, purchase.cents, purchase.state) == (ana.id, Decimal("0.2"), "settled")
    assert (purchase.vendor, purchase.stage) == ("reranker", "search")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "fault", ["status-503", "status-401", "status-422", "reset", "truncated-json", "html-200", "redirect-302"]
)
def test_any_failure_leaves_the_local_order(fault: str, ana: Person, reranker: RerankerServer, settings: Any) -> None:
    settings.RERANKER_CENTS_PER_CALL = 0.2
    create_searchable_document(ana.id, TEXTS)
    reranker.inject_fault("POST /rerank", fault)

    assert found(ana)[0] == TEXTS[0]
    assert Purchase.objects.filter(state="settled").count() == 0


@pytest.mark.django_db
def test_a_response_without_end_leaves_the_local_order(
    ana: Person, reranker: RerankerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_searchable_document(ana.id, TEXTS)
    monkeypatch.setattr(remote_reranker, "MAX_BODY_BYTES", 10)

    assert found(ana)[0] == TEXTS[0]
    assert reranker.ledger.calls == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[",
        b"5",
        {"results": None},
        {"results": [{"index": 0, "relevance_score": 1}]},  # one is missing
        {"results": [{"index": 0, "relevance_score": 1}, {"index": 0, "relevance_score": 1}]},
        {"results": [{"index": 0, "relevance_score": 1}, {"index": 2, "relevance_score": 1}]},
        {"results": [{"index": 0, "relevance_score": 1}, {"index": True, "relevance_score": 1}]},
        {"results": [{"index": 0, "relevance_score": 1}, {"index": 1, "relevance_score": "1"}]},
        b'[{"index": 0, "score": 1}, {"index": 1, "score": NaN}]',
        b'[{"index": 0, "score": 1}, {"index": 1, "score": 1e999}]',
        b'[{"index": 0, "score": 1}, {"index": 1, "score": 1%s}]' % (b"0" * 400),
    ],
)
def test_a_response_without_a_score_for_each_text_is_invalid(body: Any) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    with pytest.raises(InvalidResponse):
        remote_reranker.parse_scores(content, 2)
