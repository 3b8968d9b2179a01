"""What campaigns cost before they begin, what they refuse, and how a tenant is held at a model."""

import uuid
from decimal import Decimal
from typing import Any

import pytest

from accounts.errors import ApiError
from documents.models import Document
from embeddings import active_model
from embeddings.models import ActiveModel, DocumentChunk, ShadowVector
from embeddings.reindexing import cost_estimates, services
from embeddings.reindexing.models import Campaign
from embeddings.reindexing.tests.conftest import HOSTED, MODEL, OLD_MODEL, Fill, run_campaigns
from jobs import worker
from jobs.models import UploadJob
from testing.factories.pending_documents import create_chunked_job
from testing.fakes.openai import OpenAIServer
from testing.personas import Person, plan_pdf

pytestmark = pytest.mark.django_db
CHUNKER: dict[str, Any] = {"kind": "rechunk", "chunker": "markdown-simple@2"}
REEMBED: dict[str, Any] = {"kind": "reembed", **MODEL}


def refusal(call: Any, *args: Any, **options: Any) -> str:
    with pytest.raises(ApiError) as refused:
        call(*args, **options)
    assert refused.value.detail.endswith(".")
    return refused.value.code


def tokens() -> int:
    return sum((meta or {})["tokens"] for meta in DocumentChunk.objects.values_list("meta", flat=True))


# Estimates


def test_an_estimate_counts_each_text_once_and_writes_nothing(fill_tenant: Fill, vendor: OpenAIServer) -> None:
    ana = fill_tenant(2, 3)
    create_chunked_job(["The same text in two documents.", "The same text in two documents."], user_id=ana)
    worker.drain()
    counted = tokens()
    same = DocumentChunk.objects.filter(text__startswith="The same").first()
    assert same
    assert same.meta

    estimate = cost_estimates.estimate(kind="reembed", **HOSTED)

    assert (estimate.tenants, estimate.documents, estimate.passages, estimate.tokens) == (1, 3, 8, counted)
    assert estimate.reused_tokens == same.meta["tokens"]
    queries = 8 * 60
    assert estimate.cents == Decimal(counted - estimate.reused_tokens + queries) / 100
    assert not Campaign.objects.exists()
    assert vendor.requests == 0


def test_hours_follow_the_rate_limit_or_a_measured_rate(fill_tenant: Fill, vendor: OpenAIServer, settings: Any) -> None:
    fill_tenant(2, 3)
    settings.OPENAI_TOKENS_PER_MINUTE, settings.OPENAI_REQUESTS_PER_MINUTE = 10, 0
    by_tokens = cost_estimates.estimate(kind="reembed", **HOSTED)
    settings.OPENAI_TOKENS_PER_MINUTE, settings.OPENAI_REQUESTS_PER_MINUTE = 0, 1
    by_calls = cost_estimates.estimate(kind="reembed", **HOSTED)
    here = cost_estimates.estimate(**REEMBED)

    assert by_tokens.hours == pytest.approx(by_tokens.tokens / 10 / 60)
    assert by_calls.hours == pytest.approx(2 / 60)
    assert 0 < here.hours < 1
    assert here.cents == 0


def test_rechunk_is_priced_by_its_stored_text(ana: Person) -> None:
    ana.ingest(plan_pdf("hospital care"))

    estimate = cost_estimates.estimate(**CHUNKER)

    assert (estimate.tenants, estimate.documents) == (1, 1)
    assert estimate.tokens == tokens()


# Refusals


def test_invalid_campaigns_are_refused_by_code(fill_tenant: Fill) -> None:
    ana = fill_tenant(1, 1)
    document = {"query": "Who pays?", "document_id": str(Document.objects.get().pk)}
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("UNKNOWN_KIND", {**REEMBED, "kind": "retell"}),
        ("UNKNOWN_MODEL", {**REEMBED, "model": "gpt"}),
        ("UNKNOWN_MODEL", {**REEMBED, "version": "2"}),
        ("UNKNOWN_MODEL", {"kind": "reembed", **HOSTED}),  # without a key
        ("UNKNOWN_CHUNKER", {"kind": "rechunk", "chunker": "axe@1"}),
        ("UNKNOWN_CHUNKER", {"kind": "rechunk"}),
        ("NOTHING_TO_DO", {"kind": "reembed", **OLD_MODEL}),
        ("NOTHING_TO_DO", {**REEMBED, "user_ids": [uuid.uuid4()]}),
        ("NOTHING_TO_DO", {"kind": "rechunk", "chunker": "markdown-simple@3"}),
        ("KEEP_OUT_OF_RANGE", {**REEMBED, "keep_seconds": -1}),
        ("KEEP_OUT_OF_RANGE", {**REEMBED, "keep_seconds": float("nan")}),
        ("BUDGET_TOO_SMALL", {**REEMBED, "budget_cents": Decimal(-1)}),
        ("BUDGET_OUT_OF_RANGE", {**REEMBED, "budget_cents": Decimal("1e30")}),
        ("BUDGET_OUT_OF_RANGE", {**REEMBED, "budget_cents": Decimal("NaN")}),
        ("TOLERANCE_OUT_OF_RANGE", {**REEMBED, "tolerance": 1.1}),
        ("TOLERANCE_OUT_OF_RANGE", {**REEMBED, "tolerance": float("nan")}),
        ("CANARIES_INVALID", {**REEMBED, "canaries": ["?"]}),
        ("CANARIES_INVALID", {**REEMBED, "canaries": [{**document, "query": "Who \ud800 pays?"}]}),
        ("CANARIES_INVALID", {**REEMBED, "canaries": [{**document, "query": "Who \0 pays?"}]}),
        ("CANARIES_INVALID", {**REEMBED, "canaries": [{**document, "query": " "}]}),
        ("CANARIES_INVALID", {**REEMBED, "canaries": [{**document, "page": 0}]}),
        ("CANARIES_INVALID", {**REEMBED, "canaries": [{**document, "document_id": "x"}]}),
        ("CANARIES_INVALID", {**REEMBED, "canaries": [{**document, "document_id": str(uuid.uuid4())}]}),
        ("CANARIES_INVALID", {**REEMBED, "canaries": [{**document, "user_id": str(uuid.uuid4())}]}),
    ]

    assert [refusal(services.start, **options, by="sam") for _, options in wrong] == [code for code, _ in wrong]
    assert not Campaign.objects.exists()

    services.pin(ana, **OLD_MODEL, by="sam")
    assert refusal(services.start, **REEMBED, user_ids=[ana], by="sam") == "TENANT_PINNED"
    assert refusal(services.start, **REEMBED, by="sam") == "NOTHING_TO_DO"
    with pytest.raises(ApiError, match="1 that is pinned"):
        services.start(**REEMBED, by="sam")
    nobody = uuid.uuid4()
    with pytest.raises(ApiError, match=str(nobody)):  # never a part of those who were named
        cost_estimates.estimate(**REEMBED, user_ids=[fill_tenant(1, 1), nobody])


def test_a_budget_must_buy_a_document(fill_tenant: Fill, vendor: OpenAIServer) -> None:
    fill_tenant(2, 1)
    cents = cost_estimates.estimate(kind="reembed", **HOSTED).cents / 2

    assert refusal(services.start, kind="reembed", **HOSTED, budget_cents=cents / 2, by="sam") == "BUDGET_TOO_SMALL"
    assert services.start(kind="reembed", **HOSTED, budget_cents=cents, by="sam").state == "running"


def test_a_tenant_is_in_one_open_campaign_at_a_time(fill_tenant: Fill) -> None:
    fill_tenant(1, 1)
    campaign = services.start(**REEMBED, by="sam")

    assert refusal(cost_estimates.estimate, **REEMBED) == "CAMPAIGN_OPEN"
    assert refusal(services.start, kind="rechunk", chunker="markdown-simple@2", by="sam") in (
        "CAMPAIGN_OPEN", "NOTHING_TO_DO",
    )  # fmt: skip
    run_campaigns(1)
    assert refusal(services.start, kind="reembed", **OLD_MODEL, by="sam") == "CAMPAIGN_OPEN"
    services.settle_now(campaign, by="sam")
    run_campaigns(1)
    assert services.start(kind="reembed", **OLD_MODEL, by="sam").state == "running"


def test_action_in_the_wrong_state_names_the_state(fill_tenant: Fill) -> None:
    ana = fill_tenant(1, 1)
    campaign = services.start(**REEMBED, by="sam")

    verbs = [services.resume, services.roll_back, services.settle_now]
    assert [refusal(verb, campaign, by="sam") for verb in verbs] == ["CAMPAIGN_STATE"] * 3
    assert refusal(services.accept, campaign, ana, by="sam") == "CAMPAIGN_STATE"
    for nobody in (uuid.uuid4(), "not a uuid"):
        assert refusal(services.accept, campaign, nobody, by="sam") == "NOT_FOUND"
    assert refusal(services.roll_back, campaign, user_id=uuid.uuid4(), by="sam") == "NOT_FOUND"
    assert refusal(services.resume, campaign, budget_cents=Decimal("1e30"), by="sam") == "BUDGET_OUT_OF_RANGE"
    services.cancel(campaign, by="sam")
    for verb in (services.pause, services.resume, services.cancel):
        assert refusal(verb, campaign, by="sam") == "CAMPAIGN_STATE"


# Pins


def test_pinned_tenants_are_skipped_also_when_pinned_later(fill_tenant: Fill) -> None:
    ana, ben = fill_tenant(1, 1), fill_tenant(1, 1)
    services.pin(ana, **OLD_MODEL, by="sam")
    campaign = services.start(**REEMBED, by="sam")
    services.pin(ben, **OLD_MODEL, by="sam")
    assert campaign.tenants.get(user_id=ben).state == "skipped"

    run_campaigns()

    assert {active_model.active_model(ana).model, active_model.active_model(ben).model} == {"instant"}
    assert set(campaign.tenants.values_list("state", "reason")) == {("skipped", "PINNED")}
    assert not ShadowVector.objects.exists()
    campaign.refresh_from_db()
    assert campaign.state == "finished"
    services.unpin(ana, by="sam")
    assert services.start(**REEMBED, by="sam").tenants.get(user_id=ana).state == "working"


def test_pin_needs_all_vectors_of_the_model(fill_tenant: Fill) -> None:
    ana = fill_tenant(1, 2)
    assert refusal(services.pin, ana, **MODEL, by="sam") == "VECTORS_MISSING"
    assert refusal(services.pin, ana, model="gpt", version="1", by="sam") == "UNKNOWN_MODEL"
    assert refusal(services.unpin, ana, by="sam") == "NOT_FOUND"
    campaign = services.start(**REEMBED, by="sam")
    run_campaigns(1)
    assert active_model.active_model(ana).model == MODEL["model"]

    services.pin(ana, **OLD_MODEL, by="sam")
    run_campaigns(1)

    assert active_model.active_model(ana).model == "instant"
    assert campaign.tenants.get().state == "rolled_back"
    assert ActiveModel.objects.get(pk=ana).pinned
    assert not ShadowVector.objects.exists()
    assert refusal(services.pin, ana, **MODEL, by="sam") == "VECTORS_MISSING"


def test_tenant_without_passages_starts_with_its_pinned_model(fill_tenant: Fill) -> None:
    ana = uuid.uuid4()
    services.pin(ana, **MODEL, by="sam")

    fill_tenant(1, 1, user_id=ana)

    assert set(DocumentChunk.objects.values_list("embed_model", flat=True)) == {MODEL["model"]}


# Another cut


def test_rechunk_uses_the_stored_parse_and_is_reversible(ana: Person) -> None:
    ana.ingest(plan_pdf("hospital care", "drugs"))
    before = list(DocumentChunk.objects.order_by("pk").values_list("pk", "chunk_sha"))

    campaign = services.start(**CHUNKER, by="sam")
    assert refusal(services.roll_back, campaign, by="sam") == "CAMPAIGN_STATE"
    run_campaigns(2)

    campaign.refresh_from_db()
    assert (campaign.state, campaign.tenants.get().state) == ("finished", "settled")
    assert set(DocumentChunk.objects.values_list("chunker_version", flat=True)) == {"2"}
    assert Document.objects.get().chunks_version == CHUNKER["chunker"]
    assert UploadJob.objects.filter(campaign_id=campaign.pk, events__code="PARSE_STORED").count() == 0
    services.start(kind="rechunk", chunker="markdown-simple@3", by="sam")
    run_campaigns(2)
    assert list(DocumentChunk.objects.order_by("pk").values_list("pk", "chunk_sha")) == before
