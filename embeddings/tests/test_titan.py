"""Titan by Bedrock: what is sent, what is taken, what each refusal means, and a document embedded by it."""

import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy
import pytest
from django.core.exceptions import ImproperlyConfigured

from embeddings import tokenizer
from embeddings.embedders import registry
from embeddings.embedders.titan import Titan
from embeddings.models import DocumentChunk
from jobs.models import UploadJob
from jobs.outcomes import Permanent, Retryable, Wait
from testing.fakes.bedrock import V2, BedrockServer
from testing.fakes.faults import FAULTS, http_error, replacement, slow_body
from testing.fakes.http_messages import json_response
from testing.fakes.openai import text_vector
from testing.personas import Person, plan_pdf
from vendors import call_failures, calls

INVOKE = "POST /model/*"


@pytest.fixture(scope="module")
def opened() -> Iterator[BedrockServer]:
    with BedrockServer() as server:
        yield server


@pytest.fixture
def bedrock(opened: BedrockServer, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[BedrockServer]:
    for name, setting in opened.environment.items():
        monkeypatch.setenv(name, setting)
    settings.EMBEDDER, settings.TITAN_ENDPOINT_URL = "titan", opened.url
    settings.VENDOR_TIMEOUT_SECONDS = 5.0
    yield opened
    opened.clear_faults()
    opened.ledger.clear()
    opened.requests_per_minute = 0


def test_v1_returns_1536_numbers_and_billed_tokens(bedrock: BedrockServer) -> None:
    sold = Titan().call(["Artículo 12 Bis."])

    assert Titan().model == "amazon.titan-embed-text-v1"
    assert numpy.allclose(sold.vectors[0], text_vector("Artículo 12 Bis."), atol=1e-6)
    assert sold.tokens == tokenizer.count_tokens("Artículo 12 Bis.") == bedrock.ledger.totals["tokens"]


def test_v2_is_padded_and_named_so(bedrock: BedrockServer, settings: Any) -> None:
    settings.TITAN_MODEL = V2

    vectors = Titan().call(["Section 4(a)"]).vectors

    assert Titan().model == "amazon.titan-embed-text-v2-1024-padded"
    assert vectors.shape == (1, 1536)
    assert not vectors[0, 1024:].any()
    assert numpy.linalg.norm(vectors[0]) == pytest.approx(1, abs=1e-5)


def test_empty_long_and_invalid_texts_are_adapted(bedrock: BedrockServer) -> None:
    texts = ["", "palabra " * 20_000, "é" * 60_000, "a\ud800b", "x\x00y"]

    assert Titan().embed(texts).shape == (5, 1536)
    assert bedrock.ledger.calls == 5


def test_batch_size_is_one_text(bedrock: BedrockServer) -> None:
    assert Titan().batch_size == 1


def test_the_price_is_by_the_million_of_tokens(settings: Any) -> None:
    settings.TITAN_CENTS_PER_MILLION_TOKENS = 10.0

    assert Titan().cents(1_000_000) == Decimal(10)
    assert Titan().cents(1) == Decimal("0.00001")


LIMITED, KEY, QUOTA = "VENDOR_RATE_LIMITED", "VENDOR_REFUSES_KEY", "VENDOR_QUOTA_EXHAUSTED"
AWAY = (Retryable, "VENDOR_UNAVAILABLE")
# fmt: off
MEANING: dict[str, tuple[int, str, tuple[type[Exception], str]]] = {
    "throttled":        (429, "ThrottlingException", (Wait, LIMITED)),
    "not ready":        (429, "ModelNotReadyException", (Wait, LIMITED)),
    "throttled by 400": (400, "ThrottlingException", (Wait, LIMITED)),
    "quota":            (400, "ServiceQuotaExceededException", (Wait, QUOTA)),
    "model timeout":    (408, "ModelTimeoutException", AWAY),
    "model error":      (424, "ModelErrorException", AWAY),
    "server":           (500, "InternalServerException", AWAY),
    "unavailable":      (503, "ServiceUnavailableException", AWAY),
    "denied":           (403, "AccessDeniedException", (Wait, KEY)),
    "expired":          (403, "ExpiredTokenException", (Wait, KEY)),
    "no such client":   (403, "UnrecognizedClientException", (Wait, KEY)),
    "the text":         (400, "ValidationException", (Permanent, "VENDOR_REFUSED")),
    "no such model":    (404, "ResourceNotFoundException", (Permanent, "VENDOR_REFUSED")),
}
# fmt: on


def _outcome() -> Exception:
    try:
        Titan().call(["a text of Ana's"])
    except Exception as error:
        return calls.record_failure(Titan().vendor, error)
    raise AssertionError("the call went well")


def _named(outcome: Exception) -> tuple[type[Exception], str]:
    if isinstance(outcome, Wait):
        return Wait, outcome.reason
    assert isinstance(outcome, (Retryable, Permanent)), repr(outcome)
    return (Retryable if isinstance(outcome, Retryable) else Permanent), outcome.code


@pytest.mark.django_db
@pytest.mark.parametrize(("status", "code", "expected"), MEANING.values(), ids=MEANING)
def test_each_refusal_of_bedrock_has_its_outcome(
    status: int, code: str, expected: tuple[type[Exception], str], bedrock: BedrockServer
) -> None:
    bedrock.inject_fault(INVOKE, http_error(status, code=code))

    outcome = _outcome()

    assert _named(outcome) == expected
    assert call_failures.may_have_charged(outcome) == (expected == AWAY)
    assert bedrock.ledger.calls == 0
    assert "Ana" not in str(outcome)


@pytest.mark.django_db
def test_forbidden_model_waits_and_refuses_no_text(bedrock: BedrockServer) -> None:
    refusal = json_response({"message": "The provided model identifier is invalid."}, 400)
    refusal = type(refusal)(400, refusal.body, {**refusal.headers, "x-amzn-ErrorType": "ValidationException"})
    bedrock.inject_fault(INVOKE, replacement("no-model", refusal))

    outcome = _outcome()

    assert isinstance(outcome, calls.VendorRefused)
    assert outcome.status == 404


@pytest.mark.django_db
@pytest.mark.parametrize(
    "kind", ["reset", "html-200", "truncated-body", "garbage", "empty-200", "json-list", "redirect-302"]
)
def test_invalid_response_is_a_failure(kind: str, bedrock: BedrockServer) -> None:
    bedrock.inject_fault(INVOKE, FAULTS[kind])

    assert _named(_outcome())[0] is Retryable


@pytest.mark.django_db
def test_refused_connection_buys_nothing(bedrock: BedrockServer, settings: Any) -> None:
    settings.TITAN_ENDPOINT_URL = "http://127.0.0.1:1"

    outcome = _outcome()

    assert _named(outcome) == (Retryable, "VENDOR_UNREACHABLE")
    assert not call_failures.may_have_charged(outcome)


@pytest.mark.django_db
def test_missing_credentials_wait_without_a_charge(
    bedrock: BedrockServer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    settings.TITAN_REGION = "eu-west-1"  # a client that was not made before

    outcome = _outcome()

    assert _named(outcome) == (Wait, KEY)
    assert not call_failures.may_have_charged(outcome)
    assert bedrock.ledger.calls == 0


@pytest.mark.django_db
def test_dripping_response_ends_at_the_deadline(bedrock: BedrockServer, settings: Any) -> None:
    settings.VENDOR_TIMEOUT_SECONDS = 0.4
    bedrock.inject_fault(INVOKE, slow_body(0.1))
    began = time.monotonic()

    outcome = _outcome()

    assert _named(outcome) == (Retryable, "VENDOR_UNREACHABLE")
    assert time.monotonic() - began < 10  # 15 kB would drip for half an hour


BAD = {
    "narrow": {"embedding": [1.0] * 1024, "inputTextTokenCount": 1},
    "words": {"embedding": ["a"] * 1536, "inputTextTokenCount": 1},
    "no numbers": {"embedding": [None] * 1536},
    "zeros": {"embedding": [0.0] * 1536, "inputTextTokenCount": 1},
    "of another model": {"inputTextTokenCount": 3, "results": [{"outputText": "hello"}]},
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
def test_invalid_vector_is_rejected(body: dict[str, Any], bedrock: BedrockServer) -> None:
    bedrock.inject_fault(INVOKE, replacement("bad", json_response(body)))

    with pytest.raises(call_failures.InvalidResponse):
        Titan().call(["a"])


def test_invalid_token_count_is_not_billed(bedrock: BedrockServer) -> None:
    body = {"embedding": text_vector("a").tolist(), "inputTextTokenCount": -3}
    bedrock.inject_fault(INVOKE, replacement("free", json_response(body)))

    assert Titan().call(["a"]).tokens is None


def test_titan_is_not_configured_without_settings(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        monkeypatch.delenv(name, raising=False)
    settings.EMBEDDER, settings.STATUTES_EMBEDDER, settings.TITAN_ENDPOINT_URL = "local", "", None

    assert not any(isinstance(each, Titan) for each in registry.configured_embedders())
    with pytest.raises(ImproperlyConfigured, match="keys of AWS"):
        _ = Titan().vendor


def test_unknown_titan_model_is_a_configuration_error(settings: Any) -> None:
    settings.TITAN_MODEL = "amazon.titan-text-express-v1"

    with pytest.raises(ImproperlyConfigured, match="TITAN_MODEL"):
        _ = Titan().model


def test_request_is_sent_as_it_was_signed(bedrock: BedrockServer, settings: Any) -> None:
    settings.TITAN_REGION = "eu-north-1"  # the fake is another region's

    with pytest.raises(Exception, match="InvalidSignature"):
        Titan().call(["a"])

    assert bedrock.ledger.calls == 0


def test_document_is_embedded_by_concurrent_calls_and_found(bedrock: BedrockServer, settings: Any, ana: Person) -> None:
    bedrock.delay, settings.EMBED_IN_FLIGHT = 0.5, 3  # long enough for a second call to be made meanwhile

    uploaded = ana.ingest(plan_pdf("drugs"))

    bedrock.delay = 0.0
    job = UploadJob.objects.get(pk=uploaded.job_id)
    passages = DocumentChunk.objects.filter(document_id=uploaded.document_id)
    assert job.state == "done"
    assert {chunk.embed_model for chunk in passages} == {"amazon.titan-embed-text-v1"}
    assert bedrock.ledger.calls == passages.values("chunk_sha").distinct().count()
    assert bedrock.most_flying > 1
    assert job.cost_cents == Titan().cents(bedrock.ledger.totals["tokens"])
    assert ana.post("/search", {"query": passages[0].text, "k": 1}).status_code == 200
