"""The pointer of a tenant moves in one transaction, or not at all."""

from __future__ import annotations

import logging
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from embeddings import shadow_vectors
from embeddings.models import LiveModel
from embeddings.reindexing.models import Campaign, CampaignTenant
from jobs import failpoints

log = logging.getLogger("accessa.campaigns")

WORKING, LIVE = CampaignTenant.State.WORKING, CampaignTenant.State.LIVE
REVERTING, ROLLED_BACK = CampaignTenant.State.REVERTING, CampaignTenant.State.ROLLED_BACK
SKIPPED = CampaignTenant.State.SKIPPED
PINNED = "PINNED"


def lock_active_model(user_id: UUID) -> LiveModel | None:
    """Lock the pointer's row until the transaction ends: nothing is committed for the tenant meanwhile."""
    return LiveModel.objects.select_for_update().filter(pk=user_id).first()


def cut_over(tenant: CampaignTenant) -> bool:
    """working -> live, in one transaction; False when a passage has no vector of the target, or it is paused.

    From the commit on, search reads the new model. What was committed with the old one just before is seen here; what
    would be committed just after is refused, and planned anew.
    """
    with transaction.atomic():
        campaign = Campaign.objects.select_for_update(of=("self",)).get(pk=tenant.campaign_id)
        working = _locked(tenant, WORKING)
        pointer = lock_active_model(tenant.user_id)
        if campaign.state != Campaign.State.RUNNING or working is None or pointer is None:
            return False
        if pointer.pinned:
            _leave(working, state=SKIPPED, reason=PINNED)
            return True
        model, version = campaign.embed_model or "", campaign.embed_version or ""
        if shadow_vectors.uncovered_documents(tenant.user_id, model=model, version=version):
            return False
        set_active_model(pointer, model, version)
        _leave(working, state=LIVE, reason=None, cut_over_at=Now())
        failpoints.failpoint("cut-over:before-commit")
    log.info("Tenant %s is found by %s@%s: campaign %s.", tenant.user_id, model, version, campaign.pk)
    return True


def roll_back(tenant: CampaignTenant) -> bool:
    """live or reverting -> rolled back, in one transaction; False when a passage has no vector of the old model.

    A pinned tenant stays where it is pinned to.
    """
    with transaction.atomic():
        live = _locked(tenant, LIVE, REVERTING)
        pointer = lock_active_model(tenant.user_id)
        if live is None or pointer is None:
            return False
        if pointer.pinned:
            _leave(live, state=LIVE, reason=PINNED)
            return True
        model, version = live.from_model or "", live.from_version or ""
        if shadow_vectors.uncovered_documents(tenant.user_id, model=model, version=version):
            return False
        set_active_model(pointer, model, version)
        _leave(live, state=ROLLED_BACK, reason=None)
    log.info("Tenant %s is found by %s@%s again: campaign %s.", tenant.user_id, model, version, tenant.campaign_id)
    return True


def set_active_model(pointer: LiveModel, model: str, version: str) -> None:
    """Write the pointer, whose row is held. Vectors of the new model may be in both tables from now on."""
    LiveModel.objects.filter(pk=pointer.pk).update(
        embed_model=model,
        embed_version=version,
        previous_model=pointer.embed_model,
        previous_version=pointer.embed_version,
        shadowed=True,
        changed_at=Now(),
    )


def mark_settled(user_id: UUID, model: str, version: str) -> bool:
    """Note that the live model's vectors are all in their passages; False if another model is live."""
    own = LiveModel.objects.filter(pk=user_id, embed_model=model, embed_version=version)
    return bool(own.update(shadowed=False, previous_model=None, previous_version=None))


def _locked(tenant: CampaignTenant, *states: str) -> CampaignTenant | None:
    return CampaignTenant.objects.select_for_update().filter(pk=tenant.pk, state__in=states).first()


def _leave(tenant: CampaignTenant, **columns: object) -> None:
    CampaignTenant.objects.filter(pk=tenant.pk).update(updated_at=Now(), **columns)
