"""When a tenant is found by the new model, by the old one again, and when the old vectors go."""

import threading
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from accounts.errors import ApiError
from embeddings import active_model, shadow_vectors
from embeddings.embedders.registry import EmbeddingModel
from embeddings.models import ActiveModel, DocumentChunk, ShadowVector, VectorIndex
from embeddings.reindexing import periodic, scheduler, services, tenant_workflow
from embeddings.reindexing.models import Campaign, CampaignTenant
from embeddings.reindexing.tests.conftest import MODEL, OLD_MODEL, Fill, drain, has_lock_waiter, run_campaigns
from embeddings.search.hybrid_search import search
from testing.cluster import wait_until
from testing.concurrency import run_concurrently

pytestmark = pytest.mark.django_db
OLD, NEW = OLD_MODEL["model"], MODEL["model"]


def start_campaign(**more: Any) -> Campaign:
    return services.start(kind="reembed", **MODEL, by="sam", **more)


def tenant_of(campaign: Campaign, user_id: UUID) -> CampaignTenant:
    return campaign.tenants.get(user_id=user_id)


def is_found(user_id: UUID) -> bool:
    """Tell whether each passage is what its own text finds first, by vectors alone."""
    rows = DocumentChunk.objects.filter(user_id=user_id).values_list("pk", "text")
    return all(search(user_id=user_id, query=text, mode="vector", k=1)[0].chunk_id == pk for pk, text in rows)


def models(user_id: UUID) -> set[str | None]:
    return set(DocumentChunk.objects.filter(user_id=user_id).values_list("embed_model", flat=True))


def test_search_uses_the_old_model_until_the_cut_over(fill_tenant: Fill) -> None:
    ana, ben = fill_tenant(), fill_tenant(1)
    campaign = start_campaign(user_ids=[ana])

    drain()
    before = active_model.active_model(ana).model, is_found(ana), tenant_of(campaign, ana).state
    run_campaigns(1)

    assert before == (OLD, True, "working")
    assert (active_model.active_model(ana).model, is_found(ana)) == (NEW, True)
    moved = tenant_of(campaign, ana)
    assert (moved.state, moved.from_model, moved.documents, moved.passages) == ("live", OLD, 2, 6)
    assert moved.recall == {"queries": 6, "before": pytest.approx(0.5, abs=0.5), "after": 1.0}
    assert active_model.active_model(ben).model == OLD


@pytest.mark.slow
def test_tenant_with_worse_recall_is_held_until_accepted(fill_tenant: Fill, settings: Any) -> None:
    settings.EMBEDDER = "local"
    ana = fill_tenant(30, 1)  # of 12, ten nearest may well be right by chance
    settings.EMBEDDER = "testing.embedders.InstantEmbedder"  # a sentence is nowhere near its passage
    canaries = [
        {"query": f"{text[:40]} ...", "document_id": str(document), "page": 1}
        for document, text in DocumentChunk.objects.values_list("document_id", "text")
    ]
    campaign = services.start(kind="reembed", **OLD_MODEL, canaries=canaries, by="sam")

    run_campaigns()
    held = tenant_of(campaign, ana)
    campaign.tenants.update(state="working", reason=None)  # as if killed after the figures were written
    periodic.advance_campaigns()
    again = tenant_of(campaign, ana).state
    was = active_model.active_model(ana).model
    services.accept(campaign, ana, by="sam")
    run_campaigns(1)

    assert (held.state, held.reason, again, was) == ("held", "CANARIES_WORSE", "held", NEW)
    assert held.recall
    assert held.recall["queries"] == 30
    assert held.recall["after"] < held.recall["before"]
    assert (tenant_of(campaign, ana).state, active_model.active_model(ana).model) == ("live", OLD)
    assert tenant_of(campaign, ana).accepted_by == "sam"
    with pytest.raises(ApiError, match="CAMPAIGN_STATE"):
        services.accept(campaign, ana, by="sam")


def test_documents_uploaded_meanwhile_are_embedded_before_the_cut_over(fill_tenant: Fill) -> None:
    ana = fill_tenant()
    campaign = start_campaign()
    drain()
    fill_tenant(1, user_id=ana)

    periodic.advance_campaigns()
    between = active_model.active_model(ana).model
    run_campaigns(2)

    assert between == OLD
    assert (active_model.active_model(ana).model, tenant_of(campaign, ana).state) == (NEW, "live")
    assert is_found(ana)
    fill_tenant(1, user_id=ana)
    assert is_found(ana)


@pytest.mark.django_db(transaction=True)
def test_uncommitted_old_vectors_prevent_the_cut_over(fill_tenant: Fill) -> None:
    ana = fill_tenant(1)
    campaign = start_campaign()
    drain()
    committing = threading.Event()

    def commit() -> bool:
        with transaction.atomic():
            assert active_model.confirm_active_model(ana, EmbeddingModel(**OLD_MODEL))
            committing.set()
            wait_until(has_lock_waiter, seconds=10)
            ShadowVector.objects.filter(chunk__chunk_ord=0).delete()  # as if it had just been committed
        return False

    def cut_over() -> bool:
        committing.wait(10)
        return tenant_workflow.cut_over(tenant_of(campaign, ana))

    assert run_concurrently(commit, cut_over) == [False, False]
    assert active_model.active_model(ana).model == OLD
    run_campaigns()
    assert active_model.active_model(ana).model == NEW


def test_rollback_is_immediate_and_removes_the_new_models_vectors(fill_tenant: Fill) -> None:
    ana, ben = fill_tenant(), fill_tenant()
    campaign = start_campaign()
    run_campaigns(1)
    assert {active_model.active_model(ana).model, active_model.active_model(ben).model} == {NEW}

    number = services.roll_back(campaign, by="sam")
    after = active_model.active_model(ana).model, active_model.active_model(ben).model
    is_searchable = is_found(ana)
    run_campaigns(1)

    assert (number, after, is_searchable) == (2, (OLD, OLD), True)
    assert is_found(ana)
    assert not ShadowVector.objects.exists()
    assert not ActiveModel.objects.filter(shadowed=True).exists()
    campaign.refresh_from_db()
    assert campaign.state == "rolled_back"
    assert set(campaign.tenants.exclude(ended_at=None).values_list("user_id", "state")) == {
        (ana, "rolled_back"),
        (ben, "rolled_back"),
    }


def test_rollback_first_embeds_newer_documents_with_the_old_model(fill_tenant: Fill) -> None:
    ana, ben = fill_tenant(1), fill_tenant(1)
    campaign = start_campaign()
    run_campaigns(1)
    fill_tenant(2, user_id=ana)

    services.roll_back(campaign, by="sam", user_id=ana)
    between = tenant_of(campaign, ana).state, active_model.active_model(ana).model, is_found(ana)
    run_campaigns()

    assert between == ("reverting", NEW, True)
    assert (tenant_of(campaign, ana).state, active_model.active_model(ana).model, is_found(ana)) == (
        "rolled_back",
        OLD,
        True,
    )
    assert models(ana) == {OLD}
    assert not ShadowVector.objects.filter(user_id=ana).exists()
    assert (tenant_of(campaign, ben).state, active_model.active_model(ben).model) == ("live", NEW)


def test_settled_tenant_has_only_new_vectors_and_cannot_be_rolled_back(fill_tenant: Fill) -> None:
    ana = fill_tenant()
    campaign = start_campaign()
    run_campaigns(1)
    before = models(ana), ShadowVector.objects.count()

    services.settle_now(campaign, by="sam")
    run_campaigns(1)

    assert before == ({OLD}, 6)
    assert models(ana) == {NEW}
    assert not ShadowVector.objects.exists()
    assert is_found(ana)
    pointed = ActiveModel.objects.get(pk=ana)
    assert (pointed.shadowed, pointed.previous_model) == (False, None)
    campaign.refresh_from_db()
    assert (campaign.state, tenant_of(campaign, ana).state) == ("finished", "settled")
    with pytest.raises(ApiError, match="CAMPAIGN_STATE"):
        services.roll_back(campaign, by="sam")


def test_late_process_does_not_run_a_stale_step(fill_tenant: Fill) -> None:
    ana = fill_tenant(1)
    campaign = start_campaign()
    drain()
    seen = tenant_of(campaign, ana)
    run_campaigns(1)

    tenant_workflow.advance_tenant(seen)

    assert tenant_of(campaign, ana).state == "live"


def test_killed_settling_is_finished_by_the_periodic_task(fill_tenant: Fill) -> None:
    ana = fill_tenant(2)
    campaign = start_campaign()
    run_campaigns(1)
    campaign.tenants.update(state="settled")
    shadow_vectors.settle_shadow_vectors(ana, EmbeddingModel(**MODEL), most=2)
    between = models(ana), is_found(ana)
    with pytest.raises(ApiError, match="CAMPAIGN_STATE"):
        services.roll_back(campaign, by="sam")
    with pytest.raises(ApiError, match="VECTORS_MISSING"):
        services.pin(ana, **OLD_MODEL, by="sam")

    periodic.advance_campaigns()

    assert between == ({OLD, NEW}, True)
    assert models(ana) == {NEW}
    assert is_found(ana)
    assert not campaign.tenants.filter(ended_at=None).exists()


def test_old_vectors_are_removed_after_keep_seconds(fill_tenant: Fill) -> None:
    fill_tenant(1)
    campaign = start_campaign(keep_seconds=0)

    run_campaigns(2)

    campaign.refresh_from_db()
    assert campaign.state == "finished"


@pytest.mark.django_db(transaction=True)
def test_large_tenants_index_is_built_before_the_cut_over(fill_tenant: Fill, settings: Any) -> None:
    settings.SEARCH_EXACT_PASSAGES = 4
    ana = fill_tenant(2, 4)
    campaign = start_campaign()

    run_campaigns(1)
    (index,) = VectorIndex.objects.all()
    is_searchable = is_found(ana)
    services.settle_now(campaign, by="sam")
    run_campaigns(1)

    assert (index.table_name, index.embed_model, index.built_at is not None, is_searchable) == (
        "shadow_vectors",
        NEW,
        True,
        True,
    )
    assert not VectorIndex.objects.filter(table_name="shadow_vectors").exists()
    assert is_found(ana)


def test_cancelled_campaign_keeps_only_tenants_that_are_cut_over(fill_tenant: Fill) -> None:
    ana = fill_tenant()
    campaign = start_campaign()
    run_campaigns(1)
    ben = fill_tenant(3)
    other = start_campaign()
    drain()
    fill_tenant(1, user_id=ben)
    other.tenants.update(after_created=None, after_document=None, passed_at=None)
    scheduler.enqueue_documents(other.pk)
    assert ShadowVector.objects.filter(user_id=ben).exists()
    assert services.campaign_progress(other).active == 1

    services.cancel(other, by="sam")
    services.cancel(campaign, by="sam")
    run_campaigns(1)

    assert (active_model.active_model(ana).model, active_model.active_model(ben).model) == (NEW, OLD)
    assert not ShadowVector.objects.filter(user_id=ben).exists()
    assert ShadowVector.objects.filter(user_id=ana).exists()
    assert tenant_of(other, ben).reason == "CANCELLED"
    assert services.campaign_progress(other).active == 0
    services.roll_back(campaign, by="sam")
    assert active_model.active_model(ana).model == OLD
