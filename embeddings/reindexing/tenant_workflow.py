"""Campaign workflow of one tenant: canaries, cut-over to the new model, settling, rollback, cleanup.

Each step is a state of the tenant's row; a step that was killed is repeated.
"""

import logging
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from documents import replacement_parses
from documents.locks import lock_document
from documents.models import Document
from embeddings import active_model, chunk_store, hnsw_indexes, shadow_vectors, vector_store
from embeddings.embedders import registry
from embeddings.embedders.registry import EmbeddingModel
from embeddings.models import ActiveModel, VectorIndex
from embeddings.reindexing import canary_queries, cost_estimates, scheduler
from embeddings.reindexing.models import Campaign, CampaignTenant
from jobs import failpoints
from jobs.advisory_locks import session_lock
from jobs.choices import ACTIVE
from jobs.choices import State as JobState
from jobs.models import UploadJob
from jobs.outcomes import Permanent, Retryable, Wait

log = logging.getLogger("accessa.campaigns")

State = CampaignTenant.State
JOBS_FAILED, CANARIES_WORSE, CANARIES_FAILED = "JOBS_FAILED", "CANARIES_WORSE", "CANARIES_FAILED"
PINNED = "PINNED"
HELD_UNTIL_RESOLVED = (JOBS_FAILED, scheduler.UNAVAILABLE)  # the tenant continues by itself


def due_tenants(campaign: Campaign) -> QuerySet[CampaignTenant]:
    """Return the tenants that wait for a step, in the order of their last step."""
    expired = Now() - timedelta(seconds=campaign.keep_seconds)
    waiting = (
        Q(state=State.WORKING, passed_at__isnull=False, campaign__state=Campaign.State.RUNNING)
        | Q(state=State.HELD, reason__in=HELD_UNTIL_RESOLVED)
        | Q(state=State.REVERTING, passed_at__isnull=False)
        | Q(state__in=[State.ROLLED_BACK, State.SKIPPED, State.SETTLED])
        | Q(state=State.LIVE, cut_over_at__lte=expired)
    )
    return campaign.tenants.filter(waiting, ended_at=None).order_by("updated_at")


def advance_tenant(tenant: CampaignTenant) -> None:
    """Run the tenant's next step, unless another process runs it. Call outside of a transaction."""
    with session_lock(f"campaign:{tenant.user_id}") as is_locked:
        if not is_locked:
            return
        # Read again: another process may have run the step already.
        due = due_tenants(tenant.campaign).select_related("campaign").filter(pk=tenant.pk).first()
        if due:
            CampaignTenant.objects.filter(pk=due.pk).update(updated_at=Now())  # a step that kills us is not the next
            _STEPS[State(due.state)](due)


def _prepare_cut_over(tenant: CampaignTenant) -> None:
    """working: when a pass left no documents, run the canaries and cut over."""
    campaign = tenant.campaign
    if scheduler.count_active_jobs(campaign.pk, tenant.user_id):
        return
    if scheduler.tenant_embedder(campaign, tenant) is None:
        scheduler.hold_tenant(tenant)
    elif number := scheduler.count_failed_documents(campaign, tenant):
        _update(tenant, State.WORKING, state=State.HELD, reason=JOBS_FAILED, failed=number)
    elif _has_documents_left(tenant):
        _update(tenant, State.WORKING, **scheduler.NEW_PASS)
    elif campaign.kind != Campaign.Kind.REEMBED:
        _update(tenant, State.WORKING, state=State.SETTLED, reason=None, ended_at=Now())
    elif _passes_canaries(tenant):
        hnsw_indexes.build_index(tenant.user_id, campaign.model, VectorIndex.Table.SHADOW)
        if not cut_over(tenant):
            _update(tenant, State.WORKING, **scheduler.NEW_PASS)


def _has_documents_left(tenant: CampaignTenant) -> bool:
    campaign = tenant.campaign
    if campaign.kind != Campaign.Kind.REEMBED:
        return scheduler.has_documents_left(campaign, tenant)
    model = scheduler.target_model(campaign, tenant)
    return bool(shadow_vectors.uncovered_documents(tenant.user_id, model))


def _release(tenant: CampaignTenant) -> None:
    """Move held -> working, once the failed jobs were retried, or the missing model is configured again."""
    if scheduler.tenant_embedder(tenant.campaign, tenant) is None:
        return
    number = scheduler.count_failed_documents(tenant.campaign, tenant)
    if number and tenant.reason == JOBS_FAILED:
        _update(tenant, State.HELD, failed=number)
    else:
        _update(tenant, State.HELD, state=State.WORKING, reason=None, failed=0, **scheduler.NEW_PASS)


def _passes_canaries(tenant: CampaignTenant) -> bool:
    """Tell whether the canaries find as much as before; otherwise the tenant is held, with both figures."""
    if tenant.accepted_by:
        return True
    canaries = canary_queries.tenant_canaries(tenant.user_id, tenant.campaign.canaries)
    if not canaries:
        return True
    try:
        recall = _measure_recall(tenant, canaries)
    except (Wait, Retryable) as failure:
        log.warning("The canaries of tenant %s wait: %s", tenant.user_id, failure)
        return False
    except Permanent as failure:
        log.error("The canaries of tenant %s cannot be run: %s", tenant.user_id, failure.code)
        _update(tenant, State.WORKING, state=State.HELD, reason=CANARIES_FAILED)
        return False
    if "before" not in recall or "after" not in recall:
        return False
    is_worse = (recall["after"] or 0.0) < (recall["before"] or 0.0) - tenant.campaign.tolerance
    if is_worse:
        _update(tenant, State.WORKING, state=State.HELD, reason=CANARIES_WORSE)
    return not is_worse


def _measure_recall(tenant: CampaignTenant, canaries: list[canary_queries.Canary]) -> dict[str, Any]:
    """Return recall before and after, each saved when it is known: a vendor's failure is no reason to buy twice.

    A figure is missing when the budget does not pay for it.
    """
    recall: dict[str, Any] = tenant.recall or {"queries": len(canaries)}
    target = replace(scheduler.target_model(tenant.campaign, tenant), shadowed=True)
    models = {"after": target, "before": active_model.active_model(tenant.user_id)}
    left = {name: model for name, model in models.items() if name not in recall}
    tokens = len(canaries) * canary_queries.TOKENS
    prices = (cost_estimates.price(registry.find_embedder(model), tokens) for model in left.values())
    cents = sum(prices, Decimal(0))
    if scheduler.fits_budget(tenant.campaign, cents):
        for name, model in left.items():
            share = canary_queries.measure_recall(
                canaries, model, user_id=tenant.user_id, campaign_id=tenant.campaign_id
            )
            recall = {**recall, name: share}
            _update(tenant, State.WORKING, recall=recall)
    return recall


def _settle(tenant: CampaignTenant) -> None:
    """Move live -> settled, which cannot be rolled back: the new vectors replace the old in the chunks."""
    if tenant.state == State.LIVE and not _update(tenant, State.LIVE, state=State.SETTLED):
        return  # rolled back just now
    model = scheduler.target_model(tenant.campaign, tenant)
    if _settle_vectors(tenant.user_id, model):
        hnsw_indexes.build_index(tenant.user_id, model)
        hnsw_indexes.drop_indexes(tenant.user_id, model, VectorIndex.Table.SHADOW)
        hnsw_indexes.drop_indexes(tenant.user_id, tenant.former_model)
        _update(tenant, State.SETTLED, ended_at=Now())


def _settle_vectors(user_id: UUID, model: EmbeddingModel) -> bool:
    """Move all of the active model's vectors to their chunks; False when another model is active."""
    while shadow_vectors.settle_shadow_vectors(user_id, model):
        pass
    row = ActiveModel.objects.filter(pk=user_id, embed_model=model.model, embed_version=model.version)
    return bool(row.update(shadowed=False, previous_model=None, previous_version=None))


def _revert(tenant: CampaignTenant) -> None:
    """reverting: go back to the old model once documents uploaded since the cut-over have its vectors too."""
    if scheduler.count_active_jobs(tenant.campaign_id, tenant.user_id):
        return
    if scheduler.tenant_embedder(tenant.campaign, tenant) is None:
        scheduler.hold_tenant(tenant)
    elif number := scheduler.count_failed_documents(tenant.campaign, tenant):
        _update(tenant, State.REVERTING, reason=JOBS_FAILED, failed=number)
    elif not roll_back(tenant):
        _update(tenant, State.REVERTING, **scheduler.NEW_PASS)


def _clean_up(tenant: CampaignTenant) -> None:
    """Remove the campaign's vectors and chunks of a tenant that is rolled back or skipped."""
    campaign, user_id = tenant.campaign, tenant.user_id
    scheduler.cancel_jobs(campaign.pk, [user_id], by="campaign")
    if campaign.kind != Campaign.Kind.REEMBED:
        dead = UploadJob.objects.filter(campaign_id=campaign.pk, user_id=user_id, state=JobState.DEADLETTER)
        document_ids = set(dead.values_list("document_id", flat=True))
        abandoned = [abandon_new_chunks(document_id) for document_id in document_ids]
        if not all(abandoned):
            return  # one of them has an active job
    else:
        row = ActiveModel.objects.filter(pk=user_id).first()
        if row and row.shadowed:
            _settle_vectors(user_id, EmbeddingModel(row.embed_model, row.embed_version))
        while shadow_vectors.drop_shadow_vectors(user_id, campaign.model):
            pass
        for model in (campaign.model, tenant.former_model):
            hnsw_indexes.drop_indexes(user_id, model, VectorIndex.Table.SHADOW)
    _update(tenant, tenant.state, ended_at=Now())


def abandon_new_chunks(document_id: UUID) -> bool:
    """Remove what an abandoned rechunk or reparse has made; False while the document has an active job."""
    with transaction.atomic():
        jobs = UploadJob.objects.select_for_update().filter(document_id=document_id)
        document = Document.objects.filter(pk=document_id).first()
        if any(job.state in ACTIVE for job in jobs):
            return False
        if document is not None and document.chunks_version is not None:
            lock_document(document_id, "vectors")
            chunk_store.replace_other_chunks(document_id, chunks_version=document.chunks_version)
            vector_store.empty_buffers(document_id)
            replacement_parses.discard_parse(document)
        return True


def lock_active_model(user_id: UUID) -> ActiveModel | None:
    """Lock the tenant's active model until the transaction ends: no vectors are committed meanwhile."""
    return ActiveModel.objects.select_for_update().filter(pk=user_id).first()


def cut_over(tenant: CampaignTenant) -> bool:
    """Move working -> live in one transaction; False when a chunk has no vector of the target, or while paused.

    From the commit on, search reads the new model. A commit with the old model just before is seen here; one just after
    is refused, and its job planned again.
    """
    with transaction.atomic():
        campaign = Campaign.objects.select_for_update(of=("self",)).get(pk=tenant.campaign_id)
        row = CampaignTenant.objects.select_for_update().filter(pk=tenant.pk, state=State.WORKING).first()
        live = lock_active_model(tenant.user_id)
        if campaign.state != Campaign.State.RUNNING or row is None or live is None:
            return False
        if live.pinned:
            _update(row, row.state, state=State.SKIPPED, reason=PINNED)
            return True
        if shadow_vectors.uncovered_documents(tenant.user_id, campaign.model):
            return False
        set_active_model(live, campaign.model)
        _update(row, row.state, state=State.LIVE, reason=None, cut_over_at=Now())
        failpoints.failpoint("cut-over:before-commit")
    log.info("Tenant %s uses %s: campaign %s.", tenant.user_id, campaign.target, campaign.pk)
    return True


def roll_back(tenant: CampaignTenant) -> bool:
    """Move live or reverting -> rolled back in one transaction; False when a chunk has no vector of the old model.

    A pinned tenant keeps its model.
    """
    with transaction.atomic():
        states = (State.LIVE, State.REVERTING)
        row = CampaignTenant.objects.select_for_update().filter(pk=tenant.pk, state__in=states).first()
        live = lock_active_model(tenant.user_id)
        if row is None or live is None:
            return False
        if live.pinned:
            _update(row, row.state, state=State.LIVE, reason=PINNED)
            return True
        if shadow_vectors.uncovered_documents(tenant.user_id, row.former_model):
            return False
        set_active_model(live, row.former_model)
        _update(row, row.state, state=State.ROLLED_BACK, reason=None)
    log.info("Tenant %s uses %s again: campaign %s.", tenant.user_id, row.former_model.label, tenant.campaign_id)
    return True


def set_active_model(live: ActiveModel, model: EmbeddingModel) -> None:
    """Write the active model, whose row is locked. From now on its vectors may be in both tables."""
    ActiveModel.objects.filter(pk=live.pk).update(
        embed_model=model.model,
        embed_version=model.version,
        previous_model=live.embed_model,
        previous_version=live.embed_version,
        shadowed=True,
        changed_at=Now(),
    )


def _update(tenant: CampaignTenant, state: str, /, **columns: Any) -> bool:
    """Update the row, unless the tenant has left this state meanwhile."""
    return bool(CampaignTenant.objects.filter(pk=tenant.pk, state=state).update(updated_at=Now(), **columns))


_STEPS = {
    State.WORKING: _prepare_cut_over,
    State.HELD: _release,
    State.LIVE: _settle,
    State.SETTLED: _settle,
    State.REVERTING: _revert,
    State.ROLLED_BACK: _clean_up,
    State.SKIPPED: _clean_up,
}
