"""Holding a tenant at one model, whatever campaigns do: for comparing two models on real questions."""

from __future__ import annotations

import logging
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from accounts.errors import ApiError, not_found
from embeddings import shadow_vectors
from embeddings.models import LiveModel
from embeddings.reindexing import cutover
from embeddings.reindexing.error_codes import VECTORS_MISSING
from embeddings.reindexing.models import Campaign, CampaignTenant
from embeddings.reindexing.targets import require_embedder

log = logging.getLogger("accessa.campaigns")

State = CampaignTenant.State
MOST = 1000  # documents that a refusal counts
# From here on, what is not live is being removed.
CLEARED = (State.SETTLED, State.ROLLED_BACK, State.SKIPPED)


def pin(user_id: UUID, *, model: str, version: str, by: str) -> None:
    """Hold a tenant at a model; no campaign moves it. A tenant without passages begins with this model.

    Another model than the live one must have all vectors there, as both have between a cut-over and the settling:
    "VECTORS_MISSING". Raises ``Refused("UNKNOWN_MODEL")`` too.
    """
    require_embedder(model, version)
    with transaction.atomic():
        tenant = _open(user_id)
        LiveModel.objects.get_or_create(pk=user_id, defaults={"embed_model": model, "embed_version": version})
        found = cutover.lock_active_model(user_id)
        if found is None:  # never: nobody deletes a pointer
            raise not_found()
        if (found.embed_model, found.embed_version) != (model, version):
            _require_vectors(user_id, model, version, settling=tenant is not None and tenant.state in CLEARED)
            cutover.set_active_model(found, model, version)
        if tenant:
            _note(tenant, model, version)
        LiveModel.objects.filter(pk=user_id).update(pinned=True)
    log.info("Tenant %s is pinned to %s@%s by %s.", user_id, model, version, by)


def unpin(user_id: UUID, *, by: str) -> None:
    """Let campaigns move the tenant again; those that run do not come back to it."""
    if not LiveModel.objects.filter(pk=user_id, pinned=True).update(pinned=False):
        raise not_found()
    log.info("Tenant %s is unpinned by %s.", user_id, by)


def _open(user_id: UUID) -> CampaignTenant | None:
    """Lock the tenant's row of its open campaign: before the pointer's, as a cut-over does."""
    found = CampaignTenant.objects.select_for_update(of=("self",)).select_related("campaign")
    return found.filter(user_id=user_id, ended_at=None, campaign__kind=Campaign.Kind.REEMBED).first()


def _require_vectors(user_id: UUID, model: str, version: str, *, settling: bool) -> None:
    missing = len(shadow_vectors.uncovered_documents(user_id, model=model, version=version, most=MOST))
    if missing or settling:  # the other model's are being removed
        number = f"{missing} or more" if missing == MOST else str(missing)
        detail = f"{number} documents of this tenant have no vectors of this model: re-embed them first."
        raise ApiError(VECTORS_MISSING, detail, field="model")


def _note(tenant: CampaignTenant, model: str, version: str) -> None:
    """Write down what the pin means for the campaign that has the tenant."""
    is_target = (model, version) == (tenant.campaign.embed_model, tenant.campaign.embed_version)
    if is_target and tenant.state in (State.WORKING, State.HELD, State.REVERTING):
        columns = {"state": State.LIVE, "cut_over_at": Now(), "reason": cutover.PINNED}
    elif not is_target and tenant.state in (State.LIVE, State.REVERTING):
        columns = {"state": State.ROLLED_BACK, "reason": cutover.PINNED}
    elif not is_target and tenant.state in (State.WORKING, State.HELD):
        columns = {"state": State.SKIPPED, "reason": cutover.PINNED}
    else:
        return
    CampaignTenant.objects.filter(pk=tenant.pk).update(updated_at=Now(), **columns)
