"""What a tenant's part of a campaign needs beside its jobs. Each step is a row: killed anywhere, it is begun again."""

from __future__ import annotations

import logging
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from embeddings import active_model, embedders, reindex_jobs, shadow_vectors
from embeddings.active_model import EmbeddingModel
from embeddings.indexes import hnsw
from embeddings.models import LiveModel, VectorIndex
from embeddings.reindexing import canary_queries, cost_estimates, cutover, scheduler
from embeddings.reindexing.models import Campaign, CampaignTenant
from jobs.advisory_locks import session_lock
from jobs.models import UploadJob
from jobs.outcomes import Permanent, Retryable, Wait
from jobs.states import State as JobState

log = logging.getLogger("accessa.campaigns")

State = CampaignTenant.State
JOBS_FAILED, CANARIES_WORSE, CANARIES_FAILED = "JOBS_FAILED", "CANARIES_WORSE", "CANARIES_FAILED"
HELD_FOR_NOW = (JOBS_FAILED, scheduler.UNAVAILABLE)  # until what is missing is there

# A new cut is wanted by documents that have been cut; read once a pass.
UNCUT = """
    SELECT EXISTS (
        SELECT FROM documents d
        WHERE d.user_id = %s AND d.chunks_version IS DISTINCT FROM %s AND d.parsed_path IS NOT NULL
          AND EXISTS (
              SELECT FROM document_chunks c WHERE c.document_id = d.document_id AND c.embed_model IS NOT NULL))"""
MANY = """
    SELECT count(*) > %s FROM (
        SELECT FROM {table} WHERE user_id = %s AND embed_model = %s AND embed_version = %s LIMIT %s + 1) v"""


def due_tenants(campaign: Campaign) -> QuerySet[CampaignTenant]:
    """Return the tenants that wait for a step, those first that were looked at longest ago."""
    expired = Now() - timedelta(seconds=campaign.keep_seconds)
    waiting = (
        Q(state=State.WORKING, passed_at__isnull=False, campaign__state=Campaign.State.RUNNING)
        | Q(state=State.HELD, reason__in=HELD_FOR_NOW)
        | Q(state=State.REVERTING, passed_at__isnull=False)
        | Q(state__in=[State.ROLLED_BACK, State.SKIPPED, State.SETTLED])
        | Q(state=State.LIVE, cut_over_at__lte=expired)
    )
    return campaign.tenants.filter(waiting, ended_at=None).order_by("updated_at")


def advance_tenant(tenant: CampaignTenant) -> None:
    """Take the tenant as far as it can go now, unless another process is at it. Call outside of a transaction."""
    with session_lock(f"campaign:{tenant.user_id}") as is_ours:
        # Looked at again: another process may have taken the step that it waited for, and it waits for none now.
        found = (
            due_tenants(tenant.campaign).select_related("campaign").filter(pk=tenant.pk).first() if is_ours else None
        )
        if found:
            CampaignTenant.objects.filter(pk=found.pk).update(updated_at=Now())  # a step that kills us is not the next
            _STEPS[State(found.state)](found)


def _work(tenant: CampaignTenant) -> None:
    """working: when a pass left nothing to do, ask the canaries and cut over."""
    campaign = tenant.campaign
    if scheduler.count_active_jobs(campaign.pk, tenant.user_id):
        return
    if scheduler.tenant_embedder(campaign, tenant) is None:
        scheduler.hold_tenant(tenant)
    elif number := scheduler.count_failed_documents(campaign, tenant):
        _set(tenant, State.WORKING, state=State.HELD, reason=JOBS_FAILED, failed=number)
    elif _is_left(tenant):
        _pass_again(tenant)
    elif campaign.chunker:
        _set(tenant, State.WORKING, state=State.SETTLED, reason=None, ended_at=Now())
    elif _sings(tenant):
        _seal(tenant, VectorIndex.Table.SHADOW)
        if not cutover.cut_over(tenant):
            _pass_again(tenant)


def _is_left(tenant: CampaignTenant) -> bool:
    campaign = tenant.campaign
    if campaign.chunker:
        with connection.cursor() as cursor:
            cursor.execute(UNCUT, [tenant.user_id, campaign.chunker])
            (found,) = cursor.fetchone()
        return bool(found)
    model, version = scheduler.target_model(campaign, tenant)
    return bool(shadow_vectors.uncovered_documents(tenant.user_id, model=model, version=version))


def _pass_again(tenant: CampaignTenant) -> None:
    """Walk the documents once more: what came, or was busy, meanwhile."""
    _set(tenant, tenant.state, after_created=None, after_document=None, passed_at=None)


def _release(tenant: CampaignTenant) -> None:
    """held -> working, once the jobs that had failed were retried, or the model that was gone is back."""
    if scheduler.tenant_embedder(tenant.campaign, tenant) is None:
        return
    number = scheduler.count_failed_documents(tenant.campaign, tenant)
    if number and tenant.reason == JOBS_FAILED:
        _set(tenant, State.HELD, failed=number)
    else:
        cursor: dict[str, Any] = {"after_created": None, "after_document": None, "passed_at": None}
        _set(tenant, State.HELD, state=State.WORKING, reason=None, failed=0, **cursor)


def _sings(tenant: CampaignTenant) -> bool:
    """Tell whether the tenant's questions find as much as before; else it is held, with both figures."""
    if tenant.accepted_by:
        return True
    asked = canary_queries.tenant_canaries(tenant.user_id, tenant.campaign.canaries)
    if not asked:
        return True
    try:
        found = _measured(tenant, asked)
    except (Wait, Retryable) as away:
        log.warning("The canaries of tenant %s wait: %s", tenant.user_id, away)
        return False
    except Permanent as never:
        log.error("The canaries of tenant %s cannot be asked: %s", tenant.user_id, never.code)
        _set(tenant, State.WORKING, state=State.HELD, reason=CANARIES_FAILED)
        return False
    if "before" not in found or "after" not in found:
        return False
    is_worse = (found["after"] or 0.0) < (found["before"] or 0.0) - tenant.campaign.tolerance
    if is_worse:
        _set(tenant, State.WORKING, state=State.HELD, reason=CANARIES_WORSE)
    return not is_worse


def _measured(tenant: CampaignTenant, asked: list[canary_queries.Canary]) -> dict[str, Any]:
    """Return the figures, each written down when it is known: a vendor that is away is no reason to buy twice.

    Some are missing when the budget does not pay for them.
    """
    found: dict[str, Any] = tenant.recall or {"queries": len(asked)}
    after = EmbeddingModel(*scheduler.target_model(tenant.campaign, tenant), shadowed=True)
    models = {"after": after, "before": active_model.active_model(tenant.user_id)}
    left = {name: model for name, model in models.items() if name not in found}
    if scheduler.fits_budget(tenant.campaign, _price(len(asked), *left.values())):
        for name, model in left.items():
            found = {**found, name: _recall(tenant, asked, model)}
            _set(tenant, State.WORKING, recall=found)
    return found


def _recall(tenant: CampaignTenant, asked: list[canary_queries.Canary], model: EmbeddingModel) -> float | None:
    return canary_queries.measure_recall(asked, model, user_id=tenant.user_id, campaign_id=tenant.campaign_id)


def _price(queries: int, *models: EmbeddingModel) -> Decimal:
    found = (embedders.find_embedder(each.model, each.version) for each in models)
    return sum((cost_estimates.price(each, queries * canary_queries.TOKENS) for each in found), Decimal(0))


def _seal(tenant: CampaignTenant, table: VectorIndex.Table) -> None:
    """Build a large tenant's index before anybody needs it. A small one does not wait for those who build."""
    most = settings.SEARCH_EXACT_PASSAGES
    model, version = scheduler.target_model(tenant.campaign, tenant)
    with connection.cursor() as cursor:
        cursor.execute(MANY.format(table=table), [most, tenant.user_id, model, version, most])
        (many,) = cursor.fetchone()
    if many:
        hnsw.build_index(tenant.user_id, model, version, table=table)


def _settle(tenant: CampaignTenant) -> None:
    """live -> settled, from where nothing goes back: the new vectors take the place of the old, and those go."""
    if tenant.state == State.LIVE and not _set(tenant, State.LIVE, state=State.SETTLED):
        return  # rolled back just now
    model, version = scheduler.target_model(tenant.campaign, tenant)
    if _take_in(tenant.user_id, model, version):
        _seal(tenant, VectorIndex.Table.LIVE)
        _drop_indexes(tenant.user_id, (model, version), VectorIndex.Table.SHADOW)
        _drop_indexes(tenant.user_id, (tenant.from_model, tenant.from_version), VectorIndex.Table.LIVE)
        _set(tenant, State.SETTLED, ended_at=Now())


def _take_in(user_id: UUID, model: str, version: str) -> bool:
    """Move all of the live model's vectors to their passages; False when another model is live."""
    while shadow_vectors.settle_shadow_vectors(user_id, model=model, version=version):
        pass
    return cutover.mark_settled(user_id, model, version)


def _revert(tenant: CampaignTenant) -> None:
    """reverting: when what has come since has the old model's vectors too, the pointer goes back."""
    if scheduler.count_active_jobs(tenant.campaign_id, tenant.user_id):
        return
    if scheduler.tenant_embedder(tenant.campaign, tenant) is None:
        scheduler.hold_tenant(tenant)
    elif number := scheduler.count_failed_documents(tenant.campaign, tenant):
        _set(tenant, State.REVERTING, reason=JOBS_FAILED, failed=number)
    elif not cutover.roll_back(tenant):
        _pass_again(tenant)


def _clear(tenant: CampaignTenant) -> None:
    """rolled back or skipped: remove what was made beside the live vectors."""
    campaign, user_id = tenant.campaign, tenant.user_id
    scheduler.cancel_jobs(campaign.pk, [user_id], by="campaign")
    if campaign.chunker:
        if not _give_up(tenant):
            return
    else:
        found = LiveModel.objects.filter(pk=user_id).first()
        target = campaign.embed_model or "", campaign.embed_version or ""
        if found and found.shadowed:
            _take_in(user_id, found.embed_model, found.embed_version)
        while shadow_vectors.drop_shadow_vectors(user_id, model=target[0], version=target[1]):
            pass
        for model in (target, (tenant.from_model, tenant.from_version)):
            _drop_indexes(user_id, model, VectorIndex.Table.SHADOW)
    _set(tenant, tenant.state, ended_at=Now())


def _give_up(tenant: CampaignTenant) -> bool:
    """Remove what was cut and did not come to its vectors; False while one of these documents is worked on."""
    dead = UploadJob.objects.filter(campaign_id=tenant.campaign_id, user_id=tenant.user_id, state=JobState.DEADLETTER)
    gone = [
        reindex_jobs.abandon_rechunk(document_id) for document_id in set(dead.values_list("document_id", flat=True))
    ]
    return all(gone)


def _drop_indexes(user_id: UUID, model: tuple[str | None, str | None], table: VectorIndex.Table) -> None:
    name, version = model
    own = VectorIndex.objects.filter(user_id=user_id, embed_model=name, embed_version=version, table_name=table)
    if name and version and own.exists():
        hnsw.drop_indexes(user_id, name, version, table=table)


def _set(tenant: CampaignTenant, was: str, /, **columns: Any) -> bool:
    """Write a step, unless somebody has moved the tenant meanwhile."""
    return bool(CampaignTenant.objects.filter(pk=tenant.pk, state=was).update(updated_at=Now(), **columns))


_STEPS = {
    State.WORKING: _work,
    State.HELD: _release,
    State.LIVE: _settle,
    State.SETTLED: _settle,
    State.REVERTING: _revert,
    State.ROLLED_BACK: _clear,
    State.SKIPPED: _clear,
}
