"""Tests of the fake OpenAI with the vendor's SDK."""

import hashlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import openai
import pytest

from embeddings import tokenizer
from testing.fakes.faults import FAULTS, faults_for
from testing.fakes.ledger import Ledger
from testing.fakes.openai import MODEL, OpenAIServer, text_vector
from testing.tests.vendor_clients import SHORT, embedder


@pytest.fixture
def seller() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


def test_openai_gives_the_same_unit_vectors_in_both_encodings(seller: OpenAIServer) -> None:
    with embedder(seller) as client:
        packed = client.embeddings.create(input=["copay", "deductible"], model=MODEL)
        plain = client.embeddings.create(input=["copay", "deductible"], model=MODEL, encoding_format="float")

    rows = numpy.array([item.embedding for item in packed.data], "f4")
    assert numpy.array_equal(rows, numpy.array([item.embedding for item in plain.data], "f4"))
    assert numpy.array_equal(rows[0], text_vector("copay"))
    assert numpy.allclose(numpy.linalg.norm(rows, axis=1), 1)
    assert abs(rows[0] @ rows[1]) < 0.2
    assert packed.usage.prompt_tokens == tokenizer.count_tokens("copay") + tokenizer.count_tokens("deductible")


def test_openai_shortens_to_the_dimensions_asked_for(seller: OpenAIServer) -> None:
    with embedder(seller) as client:
        row = client.embeddings.create(input="copay", model=MODEL, dimensions=256).data[0].embedding

    assert len(row) == 256
    assert numpy.isclose(numpy.linalg.norm(row), 1)


@pytest.mark.parametrize(
    ("texts", "code"),
    [
        ([], None),
        ([""], None),
        (["fine", ""], None),
        (["x"] * 2049, "array_above_max_length"),
        (["a b " * 4500], None),
        (["a b " * 4000] * 40, "max_tokens_per_request"),
        (["a poisonous text"], None),
    ],
    ids=["none", "empty", "one-empty", "too-many", "too-long", "too-many-tokens", "poison"],
)
def test_openai_refuses_what_openai_refuses_and_sells_nothing(
    seller: OpenAIServer, texts: list[str], code: str | None
) -> None:
    seller.poison = "poison"

    with embedder(seller) as client, pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(input=texts, model=MODEL)

    assert refused.value.code == code
    assert seller.ledger.sold == 0


def test_openai_knows_its_key_and_its_models(seller: OpenAIServer) -> None:
    with embedder(seller) as client:
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="sk-wrong").embeddings.create(input="a", model=MODEL)
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(input="a", model="text-embedding-9")


def test_openai_lets_no_more_through_than_a_minute_allows(seller: OpenAIServer) -> None:
    seller.requests_per_minute, seller.tokens_per_minute = 2, 1000

    with embedder(seller) as client:
        headers = client.embeddings.with_raw_response.create(input="one", model=MODEL).headers
        client.embeddings.create(input="two", model=MODEL)
        with pytest.raises(openai.RateLimitError) as limited:
            client.embeddings.create(input="three", model=MODEL)

    assert (headers["x-ratelimit-remaining-requests"], headers["x-ratelimit-limit-tokens"]) == ("1", "1000")
    assert headers["x-request-id"].startswith("req_")
    assert limited.value.code == "rate_limit_exceeded"
    assert 25_000 < int(limited.value.response.headers["retry-after-ms"]) <= 30_001
    assert seller.ledger.sold == 2


@pytest.mark.slow
def test_calls_at_the_same_time_take_their_time_together(seller: OpenAIServer) -> None:
    seller.delay = 2.0
    started = time.monotonic()

    with embedder(seller) as client:
        calls = [
            threading.Thread(target=client.embeddings.create, kwargs={"input": text, "model": MODEL}) for text in "abcd"
        ]
        for call in calls:
            call.start()
        for call in calls:
            call.join()

    assert 2.0 <= time.monotonic() - started < 8.0  # one after the other they take eight
    assert seller.ledger.calls == 4


def test_the_ledger_has_a_line_for_each_text_before_the_answer_is_out(tmp_path: Path) -> None:
    with OpenAIServer(ledger=Ledger(tmp_path / "sold")) as seller, embedder(seller, SHORT) as client:
        client.embeddings.create(input=["a", "b"], model=MODEL)
        seller.inject_fault("POST /v1/embeddings", "hang-after-sale")
        with pytest.raises(openai.APITimeoutError):
            client.embeddings.create(input=["b"], model=MODEL)

    lines = (tmp_path / "sold").read_text().split()
    assert lines == [hashlib.sha256(text).hexdigest() for text in (b"a", b"b", b"b")]
    assert (seller.ledger.sold, seller.ledger.repeated, seller.ledger.totals["tokens"]) == (3, 1, 3)


def is_valid(answer: Any, count: int) -> bool:
    """Tell whether a client that checks model, order, width and values accepts the response."""
    data = getattr(answer, "data", None)
    if not data or getattr(answer, "model", None) != MODEL or [item.index for item in data] != list(range(count)):
        return False
    rows = [numpy.array(item.embedding) for item in data]
    return all(row.shape == (1536,) and numpy.isfinite(row).all() and row.any() for row in rows)


@pytest.mark.parametrize("name", faults_for("openai"))
def test_the_openai_sdk_sees_each_fault(seller: OpenAIServer, name: str) -> None:
    seller.inject_fault("POST /v1/embeddings", name)

    with embedder(seller) as client:
        try:
            seen: Any = client.embeddings.create(input=["a", "b"], model=MODEL, timeout=SHORT)
        except (openai.OpenAIError, ValueError, TypeError, AttributeError) as error:
            seen = error
        if name == "refused":
            seller.clear_faults()

        assert not is_valid(seen, 2)
        assert bool(seller.ledger.sold) == FAULTS[name].sold
        assert is_valid(client.embeddings.create(input=["a", "b"], model=MODEL), 2), "it lasted longer than one call"
