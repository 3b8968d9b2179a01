"""Which documents are fed to the queue, how many, in whose turn, and when not."""

import json
import uuid
from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from accounts.errors import ApiError
from documents.models import Document
from embeddings import active_model
from embeddings.embedders import registry
from embeddings.reindexing import campaign_scope, cost_estimates, periodic, scheduler, services
from embeddings.reindexing.models import Campaign, CampaignTenant
from embeddings.reindexing.stages import MAX_STEPS
from embeddings.reindexing.tests.conftest import HOSTED, MODEL, Fill, drain, run_campaigns
from jobs.models import UploadJob
from jobs.services import retry
from testing.factories.pending_documents import create_chunked_job, passage_texts
from testing.fakes.openai import OpenAIServer
from testing.personas import run_all_jobs, run_stages
from vendors.models import Purchase

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

MANY = """
    INSERT INTO documents (document_id, user_id, filename, mime, bytes_len, file_sha256, raw_path, created_at)
    SELECT gen_random_uuid(), %s, 'x.pdf', 'application/pdf', 1, gen_random_uuid()::text, 'x',
           now() - i * interval '1 second' FROM generate_series(1, %s) i"""


def start_campaign(target: dict[str, Any] = MODEL, **more: Any) -> Campaign:
    return services.start(kind="reembed", **target, by="sam", **more)


def unrelated_canary(user_id: UUID) -> list[dict[str, str]]:
    """Return a canary that repeats no passage, so that a text sold twice is a passage."""
    return [{"query": "Who pays?", "document_id": str(Document.objects.filter(user_id=user_id)[0].pk)}]


def queued(campaign: Campaign) -> Counter[UUID]:
    return Counter(UploadJob.objects.filter(campaign_id=campaign.pk, state="queued").values_list("user_id", flat=True))


def test_active_jobs_are_limited_and_tenants_take_turns(fill_tenant: Fill, settings: Any) -> None:
    settings.CAMPAIGN_JOBS = 4
    ana, ben = fill_tenant(5, 1), fill_tenant(3, 1)

    campaign = start_campaign()

    assert queued(campaign) == {ana: 2, ben: 2}


def test_finished_job_enqueues_the_next(fill_tenant: Fill, settings: Any) -> None:
    settings.CAMPAIGN_JOBS = 1
    ana = fill_tenant(5, 1)
    campaign = start_campaign()
    assert queued(campaign) == {ana: 1}

    drain()

    assert services.campaign_progress(campaign).done == 5
    assert campaign.tenants.get().passed_at


def test_finished_job_enqueues_only_a_few_documents(fill_tenant: Fill, settings: Any) -> None:
    settings.CAMPAIGN_JOBS = 1
    fill_tenant(MAX_STEPS + 3, 1)
    campaign = start_campaign()
    settings.CAMPAIGN_JOBS = 20

    for _ in run_stages():
        pass
    few = scheduler.count_active_jobs(campaign.pk)
    periodic.advance_campaigns()

    assert few == MAX_STEPS
    assert scheduler.count_active_jobs(campaign.pk) == MAX_STEPS + 2


def test_periodic_task_continues_after_a_killed_scheduler(fill_tenant: Fill, settings: Any) -> None:
    settings.CAMPAIGN_JOBS = 1
    fill_tenant(3, 1)
    campaign = start_campaign()
    UploadJob.objects.filter(campaign_id=campaign.pk).delete()  # fed, and the next never was

    run_campaigns(4)

    assert campaign.tenants.get().state == "live"


def test_paused_campaign_enqueues_nothing_and_cuts_no_tenant_over(fill_tenant: Fill, settings: Any) -> None:
    settings.CAMPAIGN_JOBS = 1
    ana = fill_tenant(3, 1)
    campaign = start_campaign()
    services.pause(campaign, by="sam")

    run_campaigns()
    between = services.campaign_progress(campaign).done, active_model.active_model(ana).model
    services.resume(campaign, by="sam")
    run_campaigns()

    assert between == (1, "instant")
    assert active_model.active_model(ana).model == MODEL["model"]


def test_busy_document_is_enqueued_in_the_next_pass(fill_tenant: Fill) -> None:
    ana = fill_tenant(2, 1)
    busy = Document.objects.filter(user_id=ana).first()
    assert busy
    UploadJob.objects.filter(document=busy).update(state="queued", finished_at=None, run_after="2100-01-01T00:00Z")

    campaign = start_campaign()
    run_campaigns()
    between = campaign.tenants.get().state, services.campaign_progress(campaign).done
    UploadJob.objects.filter(document=busy).update(state="done", finished_at="2026-01-01T00:00Z", run_after=None)
    run_campaigns()

    assert between == ("working", 1)
    assert campaign.tenants.get().state == "live"


def test_tenants_own_job_comes_before_the_campaigns(fill_tenant: Fill) -> None:
    ana = fill_tenant(1, 1)
    campaign = start_campaign()
    superseded = {"code": "SUPERSEDED", "detail": "x"}
    UploadJob.objects.filter(campaign_id=campaign.pk).update(
        state="deadletter", finished_at="2026-01-01T00:00Z", last_error=superseded
    )

    run_campaigns()

    assert campaign.tenants.get().state == "live"
    assert services.campaign_progress(campaign).failed == 0
    assert active_model.active_model(ana).model == MODEL["model"]


def test_spent_budget_pauses_the_campaign(fill_tenant: Fill, vendor: OpenAIServer, settings: Any) -> None:
    settings.CAMPAIGN_JOBS, settings.TENANT_DAILY_CENTS = 2, 0.000001
    ana = fill_tenant(4, 2)
    price = cost_estimates.estimate(kind="reembed", **HOSTED)
    each = cost_estimates.price(registry.find_embedder(registry.EmbeddingModel(**HOSTED)), price.tokens // 4)

    budget = each * 2 + each / 2
    campaign = start_campaign(HOSTED, budget_cents=budget, canaries=unrelated_canary(ana))
    run_campaigns()

    campaign.refresh_from_db()
    assert (campaign.state, campaign.reason) == ("paused", "BUDGET_SPENT")
    assert services.campaign_progress(campaign).done == 2
    assert services.campaign_progress(campaign).cents <= budget
    with pytest.raises(ApiError, match="BUDGET_TOO_SMALL"):
        services.resume(campaign, by="sam")
    with pytest.raises(ApiError, match="BUDGET_TOO_SMALL"):
        services.resume(campaign, by="sam", budget_cents=budget)
    services.resume(campaign, by="sam", budget_cents=price.cents * 2)
    run_campaigns()
    assert services.campaign_progress(campaign).done == 4
    assert each * 4 < services.campaign_progress(campaign).cents < price.cents
    assert vendor.ledger.repeated == 0
    assert set(Purchase.objects.values_list("campaign_id", flat=True)) == {campaign.pk}
    assert Purchase.objects.filter(stage="canaries").exists()


def test_estimated_price_is_enough_for_repeated_texts(vendor: OpenAIServer) -> None:
    ana = uuid.uuid4()
    for _ in range(4):
        create_chunked_job(passage_texts(3, words=1_500), user_id=ana)  # next to which the canaries cost little
    drain()
    price = cost_estimates.estimate(kind="reembed", **HOSTED)

    campaign = start_campaign(HOSTED, budget_cents=price.cents, canaries=unrelated_canary(ana))
    run_campaigns()

    campaign.refresh_from_db()
    assert price.reused_tokens == price.tokens * 3 // 4
    assert (campaign.state, services.campaign_progress(campaign).done) == ("running", 4)


def test_failed_documents_hold_the_tenant_until_retried(fill_tenant: Fill, vendor: OpenAIServer) -> None:
    ana = fill_tenant(2, 1)
    create_chunked_job(["A text that the vendor does not take: poison."], user_id=ana)
    drain()
    vendor.poison = "poison"
    campaign = start_campaign(HOSTED)

    run_campaigns()
    held = campaign.tenants.get()
    calls = vendor.requests
    CampaignTenant.objects.update(state="working", after_created=None, after_document=None, passed_at=None)
    run_campaigns()
    with pytest.raises(ApiError, match="CAMPAIGN_STATE"):
        services.accept(campaign, ana, by="sam")
    same = vendor.requests == calls
    vendor.poison = ""
    retry(UploadJob.objects.get(campaign_id=campaign.pk, state="deadletter"), by="sam")
    run_campaigns()

    assert (held.state, held.reason, held.failed, services.campaign_progress(campaign).done) == (
        "held",
        "JOBS_FAILED",
        1,
        3,
    )
    assert same
    after = campaign.tenants.get()
    assert (after.failed, after.reason) in [(0, None), (0, "CANARIES_WORSE")]
    assert after.recall


def test_deleted_document_does_not_hold_the_tenant(fill_tenant: Fill, settings: Any) -> None:
    settings.CAMPAIGN_JOBS = 1
    ana = fill_tenant(3, 1)
    campaign = start_campaign()

    Document.objects.filter(user_id=ana).order_by("-created_at")[0].delete()
    run_campaigns()

    assert campaign.tenants.get().state == "live"


@pytest.mark.usefixtures("never_vacuumed")
def test_step_reads_a_few_documents_through_the_index(fill_tenant: Fill) -> None:
    ana = fill_tenant(1, 1)
    with connection.cursor() as cursor:
        cursor.execute(MANY, [ana, 5000])
        cursor.execute(MANY, [uuid.uuid4(), 5000])
        cursor.execute("ANALYZE documents")
    campaign = start_campaign()
    tenant = campaign.tenants.get()
    assert tenant.after_document is not None or tenant.passed_at

    for sql in scheduler.NEXT_DOCUMENT.values():
        params = {
            **scheduler._query_params(campaign, tenant),
            **campaign_scope.parser_params(),
            "documents": None,
            "created": Document.objects.order_by("created_at")[4000].created_at,
        }
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", {**params, "document": uuid.UUID(int=0)})
            (plan,) = cursor.fetchone()
        nodes = list(_nodes((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]))
        read = [node for node in nodes if node.get("Relation Name") == "documents"]
        assert [node["Index Name"] for node in read] == ["ix_documents_user_created"]
        assert sum(node["Actual Rows"] * node["Actual Loops"] for node in read) <= scheduler.DOCUMENTS_PER_STEP
        assert "Seq Scan" not in {node["Node Type"] for node in nodes if node["Actual Loops"]}


def _nodes(plan: dict[str, Any]) -> Any:
    yield plan
    for part in plan.get("Plans", ()):
        yield from _nodes(part)


def test_later_pass_skips_covered_documents_and_embeds_nothing_twice(
    fill_tenant: Fill, settings: Any, vendor: OpenAIServer
) -> None:
    ana = fill_tenant(scheduler.DOCUMENTS_PER_STEP + 3, 1)
    campaign = start_campaign(HOSTED, canaries=unrelated_canary(ana))
    run_all_jobs(3)
    for text in passage_texts(2, about="late"):
        settings.EMBEDDER = "testing.embedders.InstantEmbedder"
        create_chunked_job([text], user_id=ana)
    drain()
    CampaignTenant.objects.update(after_created=None, after_document=None, passed_at=None)

    periodic.advance_campaigns()
    drain()
    periodic.advance_campaigns()

    assert services.campaign_progress(campaign).done == scheduler.DOCUMENTS_PER_STEP + 5
    assert UploadJob.objects.filter(campaign_id=campaign.pk).count() == scheduler.DOCUMENTS_PER_STEP + 5
    assert vendor.ledger.repeated == 0
