"""What may be asked of campaigns: the same verbs for the commands and the admin. Workers and the sweep do the work."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from accounts.errors import ApiError, not_found
from accounts.system_tenant import SYSTEM_TENANT_ID
from embeddings.models import LiveModel
from embeddings.reindexing import canary_queries, cost_estimates, cutover, scheduler, tenant_workflow
from embeddings.reindexing.cost_estimates import Estimate, Share, estimate
from embeddings.reindexing.error_codes import BUDGET_OUT_OF_RANGE, KEEP_OUT_OF_RANGE, TOLERANCE_OUT_OF_RANGE
from embeddings.reindexing.models import Campaign, CampaignTenant
from embeddings.reindexing.pinning import pin, unpin
from embeddings.reindexing.progress import Progress, campaign_progress
from embeddings.reindexing.targets import MOST_CENTS, Target, require_embedder, state_error, validate_target
from vendors import ledger
from vendors.error_codes import BUDGET_TOO_SMALL

__all__ = [
    "Estimate",
    "Progress",
    "accept",
    "campaign_progress",
    "cancel",
    "estimate",
    "pause",
    "pin",
    "resume",
    "roll_back",
    "settle_now",
    "start",
    "unpin",
]  # fmt: skip

log = logging.getLogger("accessa.campaigns")

KEEP_SECONDS, TOLERANCE = 86_400.0, 0.02
MOST_KEEP_SECONDS = timedelta(days=3650).total_seconds()
BY_STAFF, CANCELLED, ROLLED_BACK = "BY_STAFF", "CANCELLED", "ROLLED_BACK"

State, Of = Campaign.State, CampaignTenant.State


def start(
    *,
    kind: str,
    model: str | None = None,
    version: str | None = None,
    chunker: str | None = None,
    user_ids: Sequence[UUID] | None = None,
    budget_cents: Decimal | None = None,
    canaries: Sequence[Mapping[str, Any]] | None = None,
    keep_seconds: float = KEEP_SECONDS,
    tolerance: float = TOLERANCE,
    by: str,
) -> Campaign:
    """Enlist the tenants (all who are not pinned, and not the laws, unless named) and return; workers do the rest.

    Raises ``Refused`` as ``estimate`` does, and "CANARIES_INVALID", "KEEP_OUT_OF_RANGE", "TOLERANCE_OUT_OF_RANGE",
    "BUDGET_OUT_OF_RANGE", and "BUDGET_TOO_SMALL" for one that does not even buy an average document.
    ``tolerance`` is how much of the canaries' recall a cut-over may cost. ``by`` is who asks, as an id.
    """
    target = validate_target(kind=kind, model=model, version=version, chunker=chunker)
    if not 0 <= keep_seconds <= MOST_KEEP_SECONDS:
        raise ApiError(KEEP_OUT_OF_RANGE, "Old vectors are kept for 0 seconds to ten years.", field="keep_seconds")
    if not 0 <= tolerance <= 1:
        raise ApiError(TOLERANCE_OUT_OF_RANGE, "A cut-over may cost 0 to 1 of the recall.", field="tolerance")
    _require_amount(budget_cents)
    asked = canary_queries.validate_canaries(canaries)
    shares = cost_estimates.select_tenants(target, user_ids)
    _require_budget(target, shares, budget_cents)
    limits = {"budget_cents": budget_cents, "keep_seconds": keep_seconds, "tolerance": tolerance}
    columns = {**limits, "canaries": asked, "created_by": by}
    try:
        with transaction.atomic():
            campaign = Campaign.objects.create(
                kind=kind, embed_model=target.model, embed_version=target.version, chunker=target.chunker, **columns
            )
            _enlist(campaign, shares, everybody=user_ids is None)
    except IntegrityError as error:
        if "uq_campaign_tenant_open" not in str(error):
            raise
        raise cost_estimates.open_campaign_error(None) from error
    log.info("Campaign %s to %s was started by %s for %d tenants.", campaign.pk, target.label, by, len(shares))
    scheduler.enqueue_documents(campaign.pk)
    return _fresh(campaign)


def _require_amount(budget_cents: Decimal | None) -> None:
    if budget_cents is not None and not (budget_cents.is_finite() and abs(budget_cents) <= MOST_CENTS):
        raise ApiError(BUDGET_OUT_OF_RANGE, f"A budget is 0 to {MOST_CENTS} cents.", field="budget_cents")


def _require_budget(target: Target, shares: Sequence[Share], budget_cents: Decimal | None) -> None:
    documents = sum(share.documents for share in shares)
    least = cost_estimates.cents_of(target, shares) / max(1, documents)
    if budget_cents is not None and (budget_cents < 0 or budget_cents < least):
        raise _too_small(f"An average document costs {least:.6f} cents.")


def _too_small(detail: str) -> ApiError:
    return ApiError(BUDGET_TOO_SMALL, detail, field="budget_cents")


def _enlist(campaign: Campaign, shares: Sequence[Share], *, everybody: bool) -> None:
    rows = [
        CampaignTenant(
            campaign=campaign,
            user_id=share.live.pk,
            documents=share.documents,
            passages=share.passages,
            tokens=share.tokens,
            from_model=share.live.embed_model,
            from_version=share.live.embed_version,
        )
        for share in shares
    ]
    if everybody:
        pinned = LiveModel.objects.filter(pinned=True).exclude(pk=SYSTEM_TENANT_ID).values_list("pk", flat=True)
        skipped = {"state": Of.SKIPPED, "reason": cutover.PINNED, "ended_at": Now()}
        rows += [CampaignTenant(campaign=campaign, user_id=user_id, **skipped) for user_id in pinned]
    CampaignTenant.objects.bulk_create(rows, batch_size=1000)


def pause(campaign: Campaign, *, by: str) -> Campaign:
    """running -> paused: nothing more is fed and nobody is cut over; jobs in the queue end.

    Old vectors of tenants that are cut over already are removed at their time all the same.
    """
    return _move(campaign, [State.RUNNING], State.PAUSED, by=by, reason=BY_STAFF)


def resume(campaign: Campaign, *, by: str, budget_cents: Decimal | None = None) -> Campaign:
    """paused -> running, with another budget if one is given; one that was spent must be raised: "BUDGET_TOO_SMALL"."""
    now = Campaign.objects.get(pk=campaign.pk)
    _require_amount(budget_cents)
    if budget_cents is None:
        if now.reason == scheduler.SPENT:
            raise _too_small(f"The budget of {now.budget_cents:f} cents is spent: give a larger one.")
        return _move(campaign, [State.PAUSED], State.RUNNING, by=by)
    least = now.budget_cents or Decimal(0) if now.reason == scheduler.SPENT else ledger.spent_by_campaign(now.pk)
    if budget_cents <= least:
        raise _too_small(f"The budget must be more than {least:f} cents.")
    return _move(campaign, [State.PAUSED], State.RUNNING, by=by, budget_cents=budget_cents)


def cancel(campaign: Campaign, *, by: str) -> Campaign:
    """running or paused -> cancelled. Tenants that are cut over stay so, and can be rolled back in their time.

    Of all others, what was made is removed by the next sweep. Documents that have been cut anew stay so.
    """
    with transaction.atomic():
        moved = _move(campaign, [State.RUNNING, State.PAUSED], State.CANCELLED, by=by, finished_at=Now())
        skipped = _skip_the_rest(campaign, CANCELLED)
    scheduler.cancel_jobs(campaign.pk, skipped, by=by)
    return moved


def _skip_the_rest(campaign: Campaign, reason: str) -> list[UUID]:
    """Skip who is not cut over; whoever is going back goes on. Return who is skipped. Call in a transaction."""
    unfinished = campaign.tenants.select_for_update().filter(state__in=[Of.WORKING, Of.HELD])
    skipped = list(unfinished.values_list("user_id", flat=True))
    campaign.tenants.filter(user_id__in=skipped).update(state=Of.SKIPPED, reason=reason, updated_at=Now())
    return skipped


def accept(campaign: Campaign, user_id: UUID | str, *, by: str) -> CampaignTenant:
    """held -> working: cut the tenant over although its canaries found less, or could not be asked.

    Raises ``Refused``: "CAMPAIGN_STATE" for one that is not held, or is held because jobs failed or its model is
    gone: it goes on by itself when those are retried, or that is back.
    """
    tenant = _tenant(campaign, user_id)
    if tenant.reason == tenant_workflow.JOBS_FAILED:
        raise state_error(f"{tenant.failed} documents of this tenant are dead letters: retry or delete them.")
    if tenant.reason == scheduler.UNAVAILABLE:
        raise state_error("The model that this tenant needs is not configured here.")
    held = CampaignTenant.objects.filter(pk=tenant.pk, state=Of.HELD)
    if not held.update(state=Of.WORKING, reason=None, accepted_by=by, updated_at=Now()):
        raise state_error("This tenant is not held.")
    log.info("Tenant %s of campaign %s was accepted by %s.", tenant.user_id, campaign.pk, by)
    return _tenant(campaign, user_id)


def roll_back(campaign: Campaign, *, by: str, user_id: UUID | None = None) -> int:
    """Let live tenants, or one of them, be found by the old model again; return how many that concerns.

    At once, in one transaction each, where every passage still has the old model's vector. Where something was
    uploaded since the cut-over, the old model embeds that first, whatever the campaign's budget says, and search stays
    with the new model until then (state "reverting"). Without ``user_id`` the whole campaign ends: who is not cut over
    yet stays with the old model. Settled tenants have no old vectors: start a campaign back. So does a rechunk:
    "CAMPAIGN_STATE". A pinned tenant stays, and is refused by name: "TENANT_PINNED". Nobody moves when an old model is
    not configured any more: "UNKNOWN_MODEL".
    """
    if campaign.kind == Campaign.Kind.RECHUNK:
        raise state_error("A rechunk replaces each document's passages: go back by a rechunk to the old chunker.")
    rows = _revertible(campaign, user_id)
    if user_id is None:
        with transaction.atomic():
            states = [State.RUNNING, State.PAUSED, State.CANCELLED]
            _move(campaign, states, State.ROLLED_BACK, by=by, finished_at=Now())
            skipped = _skip_the_rest(campaign, ROLLED_BACK)
        scheduler.cancel_jobs(campaign.pk, skipped, by=by)
    for tenant in rows:
        _revert(tenant)
    scheduler.enqueue_documents(campaign.pk)
    return len(rows)


def _revertible(campaign: Campaign, user_id: UUID | None) -> list[CampaignTenant]:
    live = campaign.tenants.filter(state=Of.LIVE)
    found = list(live.filter(user_id=_tenant(campaign, user_id).user_id) if user_id else live)
    if not found:
        raise state_error("There is no tenant that is cut over and still has its old vectors.")
    pinned = LiveModel.objects.filter(pinned=True, pk__in=[each.user_id for each in found])
    stays = set(pinned.values_list("pk", flat=True))
    rows = [each for each in found if each.user_id not in stays]
    if not rows:
        raise cost_estimates.pinned_error(found[0].user_id)
    for model, version in {(each.from_model or "", each.from_version or "") for each in rows}:
        require_embedder(model, version)
    return rows


def _revert(tenant: CampaignTenant) -> None:
    if not cutover.roll_back(tenant):
        begin = {"after_created": None, "after_document": None, "passed_at": None}
        CampaignTenant.objects.filter(pk=tenant.pk, state=Of.LIVE).update(state=Of.REVERTING, updated_at=Now(), **begin)


def settle_now(campaign: Campaign, *, by: str) -> Campaign:
    """Remove the old vectors of all live tenants with the next sweep; from then on nothing can be rolled back."""
    if not campaign.tenants.filter(state=Of.LIVE).exists():
        raise state_error("There is no tenant that is cut over and still has its old vectors.")
    Campaign.objects.filter(pk=campaign.pk).update(keep_seconds=0.0, updated_at=Now())
    log.info("Campaign %s is settled by %s.", campaign.pk, by)
    return _fresh(campaign)


def _tenant(campaign: Campaign, user_id: UUID | str) -> CampaignTenant:
    try:
        found = campaign.tenants.filter(user_id=UUID(str(user_id))).first()
    except ValueError:
        found = None
    if found is None:
        raise not_found()
    return found


def _move(
    campaign: Campaign, sources: Sequence[str], to: str, *, by: str, reason: str | None = None, **columns: Any
) -> Campaign:
    own = Campaign.objects.filter(pk=campaign.pk, state__in=sources)
    if not own.update(state=to, reason=reason, updated_at=Now(), **columns):
        state = Campaign.objects.values_list("state", flat=True).get(pk=campaign.pk)
        raise state_error(f"This campaign is {state}; it would have to be {' or '.join(sources)}.")
    log.info("Campaign %s is %s by %s.", campaign.pk, to, by)
    return _fresh(campaign)


def _fresh(campaign: Campaign) -> Campaign:
    return Campaign.objects.get(pk=campaign.pk)
