"""Cut-over and rollback: change of a tenant's active model in one transaction."""

import logging
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from embeddings import shadow_vectors
from embeddings.models import ActiveModel
from embeddings.reindexing.models import Campaign, CampaignTenant
from jobs import failpoints

log = logging.getLogger("accessa.campaigns")

State = CampaignTenant.State
PINNED = "PINNED"


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
        row = _lock_tenant(tenant, State.WORKING)
        live = lock_active_model(tenant.user_id)
        if campaign.state != Campaign.State.RUNNING or row is None or live is None:
            return False
        if live.pinned:
            _update(row, state=State.SKIPPED, reason=PINNED)
            return True
        model, version = campaign.embed_model or "", campaign.embed_version or ""
        if shadow_vectors.uncovered_documents(tenant.user_id, model=model, version=version):
            return False
        set_active_model(live, model, version)
        _update(row, state=State.LIVE, reason=None, cut_over_at=Now())
        failpoints.failpoint("cut-over:before-commit")
    log.info("Tenant %s uses %s@%s: campaign %s.", tenant.user_id, model, version, campaign.pk)
    return True


def roll_back(tenant: CampaignTenant) -> bool:
    """Move live or reverting -> rolled back in one transaction; False when a chunk has no vector of the old model.

    A pinned tenant keeps its model.
    """
    with transaction.atomic():
        row = _lock_tenant(tenant, State.LIVE, State.REVERTING)
        live = lock_active_model(tenant.user_id)
        if row is None or live is None:
            return False
        if live.pinned:
            _update(row, state=State.LIVE, reason=PINNED)
            return True
        model, version = row.from_model or "", row.from_version or ""
        if shadow_vectors.uncovered_documents(tenant.user_id, model=model, version=version):
            return False
        set_active_model(live, model, version)
        _update(row, state=State.ROLLED_BACK, reason=None)
    log.info("Tenant %s uses %s@%s again: campaign %s.", tenant.user_id, model, version, tenant.campaign_id)
    return True


def set_active_model(live: ActiveModel, model: str, version: str) -> None:
    """Write the active model, whose row is locked. From now on its vectors may be in both tables."""
    ActiveModel.objects.filter(pk=live.pk).update(
        embed_model=model,
        embed_version=version,
        previous_model=live.embed_model,
        previous_version=live.embed_version,
        shadowed=True,
        changed_at=Now(),
    )


def mark_settled(user_id: UUID, model: str, version: str) -> bool:
    """Note that all vectors of the active model are in their chunks; False if another model is active."""
    row = ActiveModel.objects.filter(pk=user_id, embed_model=model, embed_version=version)
    return bool(row.update(shadowed=False, previous_model=None, previous_version=None))


def _lock_tenant(tenant: CampaignTenant, *states: str) -> CampaignTenant | None:
    return CampaignTenant.objects.select_for_update().filter(pk=tenant.pk, state__in=states).first()


def _update(tenant: CampaignTenant, **columns: object) -> None:
    CampaignTenant.objects.filter(pk=tenant.pk).update(updated_at=Now(), **columns)
