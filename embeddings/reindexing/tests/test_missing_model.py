"""A model that is not configured any more: who waits for it, and who does not."""

from typing import Any

import pytest

from accounts.errors import ApiError
from embeddings import active_model
from embeddings.embedders import registry
from embeddings.models import ActiveModel, DocumentChunk
from embeddings.reindexing import periodic, scheduler, services
from embeddings.reindexing.models import Campaign, CampaignTenant
from embeddings.reindexing.tests.conftest import HOSTED, MODEL, NEW, OLD, OLD_MODEL, Fill, drain, run_campaigns
from jobs.models import UploadJob
from testing.fakes.openai import OpenAIServer
from testing.personas import Person, plan_pdf

pytestmark = pytest.mark.django_db
FAILING = "testing.personas.FailingEmbedder"
GONE = {"embed_model": "gone"}


def state(campaign: Campaign, user_id: Any) -> tuple[str, str | None]:
    tenant = campaign.tenants.get(user_id=user_id)
    return tenant.state, tenant.reason


def test_tenant_with_an_unconfigured_model_does_not_block_others(ana: Person, ben: Person, settings: Any) -> None:
    settings.EMBEDDER, settings.CAMPAIGN_JOBS = "local", 1
    ana.ingest(plan_pdf("drugs"))
    ben.ingest(plan_pdf("dental care"))
    campaign = services.start(kind="rechunk", chunker="markdown-simple@2", user_ids=[ana.id, ben.id], by="sam")
    UploadJob.objects.filter(campaign_id=campaign.pk).delete()
    anew = {"after_created": None, "after_document": None, "passed_at": None}
    campaign.tenants.filter(user_id=ana.id).update(fed_at="2000-01-01T00:00Z", **anew)
    campaign.tenants.filter(user_id=ben.id).update(**anew)
    for rows in (DocumentChunk.objects.filter(user_id=ana.id), ActiveModel.objects.filter(pk=ana.id)):
        rows.update(**GONE)

    run_campaigns()

    assert state(campaign, ana.id) == ("held", "MODEL_UNAVAILABLE")
    assert state(campaign, ben.id) == ("settled", None)
    with pytest.raises(ApiError, match="CAMPAIGN_STATE"):
        services.accept(campaign, ana.id, by="sam")
    for rows in (DocumentChunk.objects.filter(user_id=ana.id), ActiveModel.objects.filter(pk=ana.id)):
        rows.update(embed_model=MODEL["model"])
    run_campaigns()
    assert state(campaign, ana.id) == ("settled", None)


def test_jobs_of_an_unconfigured_model_leave_the_queue_and_return(
    fill_tenant: Fill, vendor: OpenAIServer, settings: Any
) -> None:
    ana = fill_tenant(2, 1)
    campaign = services.start(kind="reembed", **HOSTED, by="sam")
    key, settings.OPENAI_API_KEY = settings.OPENAI_API_KEY, ""

    run_campaigns(1)
    held = state(campaign, ana), scheduler.count_active_jobs(campaign.pk), services.campaign_progress(campaign).failed
    settings.OPENAI_API_KEY = key
    run_campaigns()

    assert held == (("held", "MODEL_UNAVAILABLE"), 0, 0)
    assert state(campaign, ana)[0] == "live"


@pytest.mark.slow
def test_reverting_tenant_waits_for_the_old_model_and_stays_searchable(fill_tenant: Fill, settings: Any) -> None:
    ana = fill_tenant(1)
    campaign = services.start(kind="reembed", **MODEL, by="sam")
    run_campaigns(1)
    fill_tenant(2, user_id=ana)
    services.roll_back(campaign, by="sam", user_id=ana)
    settings.EMBEDDER = NEW

    run_campaigns()
    waits = state(campaign, ana), active_model.active_model(ana).model
    settings.EMBEDDER = OLD
    run_campaigns()

    assert waits == (("reverting", "MODEL_UNAVAILABLE"), MODEL["model"])
    assert (state(campaign, ana), active_model.active_model(ana).model) == (("rolled_back", None), "instant")


def test_rollback_to_an_unconfigured_model_is_refused(fill_tenant: Fill, settings: Any) -> None:
    ana = fill_tenant(1)
    campaign = services.start(kind="reembed", **MODEL, by="sam")
    run_campaigns(1)
    settings.EMBEDDER = NEW

    with pytest.raises(ApiError, match="UNKNOWN_MODEL"):
        services.roll_back(campaign, by="sam")

    campaign.refresh_from_db()
    assert (campaign.state, active_model.active_model(ana).model, state(campaign, ana)[0]) == (
        "running",
        MODEL["model"],
        "live",
    )


def test_canaries_are_not_bought_twice_when_the_other_model_fails(
    fill_tenant: Fill, vendor: OpenAIServer, settings: Any
) -> None:
    settings.EMBEDDER = FAILING
    old: Any = registry.get_embedder(FAILING)
    old.seen, old.calls_until_failure = [], -1
    ana = fill_tenant(1)
    services.start(kind="reembed", **HOSTED, tolerance=1.0, by="sam")
    drain()
    old.calls_until_failure = 0

    periodic.advance_campaigns()
    first = CampaignTenant.objects.get(user_id=ana).recall
    calls = vendor.requests
    periodic.advance_campaigns()

    assert (first or {}).keys() == {"queries", "after"}
    moved = CampaignTenant.objects.get(user_id=ana)
    assert (moved.state, moved.recall) == ("live", {**(first or {}), "before": pytest.approx(0.5, abs=0.5)})
    assert vendor.requests == calls
    assert OLD_MODEL["model"] == moved.from_model
