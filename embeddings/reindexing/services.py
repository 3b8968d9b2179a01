"""Campaign services, called by the commands and the admin: start, pause, resume, cancel, accept, roll back, pin."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Count, Q, Sum
from django.db.models.functions import Now

from accounts.common_error_codes import not_found
from accounts.errors import ApiError
from accounts.system_tenant import SYSTEM_TENANT_ID
from embeddings import shadow_vectors
from embeddings.embedders.registry import EmbeddingModel
from embeddings.models import ActiveModel
from embeddings.reindexing import campaign_scope, canary_queries, cost_estimates, scheduler, tenant_workflow
from embeddings.reindexing.campaign_scope import Share, require_embedder
from embeddings.reindexing.cost_estimates import MAX_CENTS
from embeddings.reindexing.error_codes import (
    BUDGET_OUT_OF_RANGE,
    CAMPAIGN_STATE,
    KEEP_OUT_OF_RANGE,
    TOLERANCE_OUT_OF_RANGE,
    VECTORS_MISSING,
)
from embeddings.reindexing.models import Campaign, CampaignTenant
from jobs.choices import ACTIVE, CANCELLED_CODES
from jobs.choices import State as JobState
from jobs.models import UploadJob
from vendors import ledger
from vendors.error_codes import BUDGET_TOO_SMALL
from vendors.models import Purchase

log = logging.getLogger("accessa.campaigns")

KEEP_SECONDS, TOLERANCE = 86_400.0, 0.02
MAX_KEEP_SECONDS = timedelta(days=3650).total_seconds()
BY_STAFF, CANCELLED, ROLLED_BACK = "BY_STAFF", "CANCELLED", "ROLLED_BACK"
MAX_COUNTED = 1000  # documents without vectors that an error message counts

State, TenantState = Campaign.State, CampaignTenant.State
# In these states the vectors of the model that is not active are being removed.
CLEARING = (TenantState.SETTLED, TenantState.ROLLED_BACK, TenantState.SKIPPED)


def start(
    *,
    kind: str,
    model: str | None = None,
    version: str | None = None,
    chunker: str | None = None,
    parser: str | None = None,
    user_ids: Sequence[UUID] | None = None,
    document_ids: Sequence[UUID] | None = None,
    budget_cents: Decimal | None = None,
    canaries: Sequence[Mapping[str, Any]] | None = None,
    keep_seconds: float = KEEP_SECONDS,
    tolerance: float = TOLERANCE,
    by: str,
) -> Campaign:
    """Start a campaign for these tenants (default: all but the pinned and the statutes); workers do the rest.

    Raises ``ApiError`` as ``estimate`` does, and "CANARIES_INVALID", "KEEP_OUT_OF_RANGE", "TOLERANCE_OUT_OF_RANGE",
    "BUDGET_OUT_OF_RANGE", and "BUDGET_TOO_SMALL" for one that does not even buy an average document.
    ``tolerance`` is how much of the canaries' recall a cut-over may cost. ``by`` is the id of the person.
    """
    target = campaign_scope.validate_target(
        kind=kind, model=model, version=version, chunker=chunker, parser=parser, document_ids=document_ids
    )
    if not 0 <= keep_seconds <= MAX_KEEP_SECONDS:
        raise ApiError(KEEP_OUT_OF_RANGE, "Old vectors are kept for 0 seconds to ten years.", field="keep_seconds")
    if not 0 <= tolerance <= 1:
        raise ApiError(TOLERANCE_OUT_OF_RANGE, "A cut-over may cost 0 to 1 of the recall.", field="tolerance")
    _require_amount(budget_cents)
    valid_canaries = canary_queries.validate_canaries(canaries)
    shares = campaign_scope.select_tenants(target, user_ids)
    average = cost_estimates.total_cents(target, shares) / max(1, sum(share.documents for share in shares))
    if budget_cents is not None and (budget_cents < 0 or budget_cents < average):
        raise _budget_too_small(f"An average document costs {average:.6f} cents.")
    limits = {"budget_cents": budget_cents, "keep_seconds": keep_seconds, "tolerance": tolerance}
    try:
        with transaction.atomic():
            names = {"chunker": target.chunker, "parser": target.parser, "document_ids": target.document_ids}
            if target.model:
                names |= {"embed_model": model, "embed_version": version}
            campaign = Campaign.objects.create(kind=kind, canaries=valid_canaries, created_by=by, **names, **limits)
            _enlist_tenants(campaign, shares, with_pinned=user_ids is None and document_ids is None)
    except IntegrityError as error:
        if "uq_campaign_tenant_open" not in str(error):
            raise
        raise campaign_scope.open_campaign_error(None) from error
    log.info("Campaign %s to %s was started by %s for %d tenants.", campaign.pk, target.label, by, len(shares))
    scheduler.enqueue_documents(campaign.pk)
    return _reload(campaign)


def _enlist_tenants(campaign: Campaign, shares: Sequence[Share], *, with_pinned: bool) -> None:
    rows = [
        CampaignTenant(
            campaign=campaign,
            user_id=share.user_id,
            documents=share.documents,
            passages=share.passages,
            tokens=share.tokens,
            from_model=share.active.model,
            from_version=share.active.version,
        )
        for share in shares
    ]
    if with_pinned:
        pinned = ActiveModel.objects.filter(pinned=True).exclude(pk=SYSTEM_TENANT_ID)
        skipped = {"state": TenantState.SKIPPED, "reason": tenant_workflow.PINNED, "ended_at": Now()}
        rows += [CampaignTenant(campaign=campaign, user_id=live.pk, **skipped) for live in pinned]
    CampaignTenant.objects.bulk_create(rows, batch_size=1000)


def _require_amount(budget_cents: Decimal | None) -> None:
    if budget_cents is not None and not (budget_cents.is_finite() and abs(budget_cents) <= MAX_CENTS):
        raise ApiError(BUDGET_OUT_OF_RANGE, f"A budget is 0 to {MAX_CENTS} cents.", field="budget_cents")


def _budget_too_small(detail: str) -> ApiError:
    return ApiError(BUDGET_TOO_SMALL, detail, field="budget_cents")


def pause(campaign: Campaign, *, by: str) -> Campaign:
    """Move running -> paused: no more jobs are enqueued and no tenant is cut over; active jobs end.

    Old vectors of tenants that are cut over already are removed in their time all the same.
    """
    return _move(campaign, [State.RUNNING], State.PAUSED, by=by, reason=BY_STAFF)


def resume(campaign: Campaign, *, by: str, budget_cents: Decimal | None = None) -> Campaign:
    """Move paused -> running, optionally with another budget: a larger one if it was spent ("BUDGET_TOO_SMALL")."""
    current = _reload(campaign)
    _require_amount(budget_cents)
    is_spent = current.reason == scheduler.SPENT
    if budget_cents is None:
        if is_spent:
            raise _budget_too_small(f"The budget of {current.budget_cents:f} cents is spent: give a larger one.")
        return _move(campaign, [State.PAUSED], State.RUNNING, by=by)
    least = current.budget_cents or Decimal(0) if is_spent else ledger.spent_by_campaign(current.pk)
    if budget_cents <= least:
        raise _budget_too_small(f"The budget must be more than {least:f} cents.")
    return _move(campaign, [State.PAUSED], State.RUNNING, by=by, budget_cents=budget_cents)


def cancel(campaign: Campaign, *, by: str) -> Campaign:
    """Move running or paused -> cancelled. Tenants that are cut over stay so, and can be rolled back in their time.

    The vectors and chunks of all others are removed by the periodic task. Documents that have been rechunked stay so.
    """
    return _end(campaign, [State.RUNNING, State.PAUSED], State.CANCELLED, CANCELLED, by=by)


def _end(campaign: Campaign, sources: Sequence[str], state: str, reason: str, *, by: str) -> Campaign:
    with transaction.atomic():
        ended = _move(campaign, sources, state, by=by, finished_at=Now())
        unfinished = campaign.tenants.select_for_update().filter(state__in=[TenantState.WORKING, TenantState.HELD])
        skipped = list(unfinished.values_list("user_id", flat=True))
        campaign.tenants.filter(user_id__in=skipped).update(state=TenantState.SKIPPED, reason=reason, updated_at=Now())
    scheduler.cancel_jobs(campaign.pk, skipped, by=by)
    return ended


def accept(campaign: Campaign, user_id: UUID | str, *, by: str) -> CampaignTenant:
    """Move held -> working: cut the tenant over although its canaries found less, or could not be run.

    Raises ``ApiError("CAMPAIGN_STATE")`` for a tenant that is not held, or is held because jobs failed or its model is
    missing: it continues by itself when those are retried, or the model is configured again.
    """
    tenant = _tenant(campaign, user_id)
    if tenant.reason == tenant_workflow.JOBS_FAILED:
        raise _state_error(f"{tenant.failed} documents of this tenant are dead letters: retry or delete them.")
    if tenant.reason == scheduler.UNAVAILABLE:
        raise _state_error("The model that this tenant needs is not configured here.")
    held = CampaignTenant.objects.filter(pk=tenant.pk, state=TenantState.HELD)
    if not held.update(state=TenantState.WORKING, reason=None, accepted_by=by, updated_at=Now()):
        raise _state_error("This tenant is not held.")
    log.info("Tenant %s of campaign %s was accepted by %s.", tenant.user_id, campaign.pk, by)
    return _tenant(campaign, user_id)


def roll_back(campaign: Campaign, *, by: str, user_id: UUID | None = None) -> int:
    """Return live tenants, or one of them, to the old model; return how many that concerns.

    At once, in one transaction each, where every chunk still has the old model's vector. Where documents were uploaded
    since the cut-over, the old model embeds those first, whatever the campaign's budget, and search stays with the new
    model until then (state "reverting"). Without ``user_id`` the whole campaign ends: tenants that are not cut over
    keep the old model. Settled tenants have no old vectors: start a campaign back. For a rechunk or a
    reparse too: "CAMPAIGN_STATE". A pinned tenant keeps its model; one that is named is refused: "TENANT_PINNED".
    Nothing changes when an old model is not configured any more: "UNKNOWN_MODEL".
    """
    if campaign.kind != Campaign.Kind.REEMBED:
        raise _state_error("It has replaced each document's passages: go back by a campaign to what was before.")
    tenants = _revertible_tenants(campaign, user_id)
    if user_id is None:
        _end(campaign, [State.RUNNING, State.PAUSED, State.CANCELLED], State.ROLLED_BACK, ROLLED_BACK, by=by)
    for tenant in tenants:
        if not tenant_workflow.roll_back(tenant):
            live = CampaignTenant.objects.filter(pk=tenant.pk, state=TenantState.LIVE)
            live.update(state=TenantState.REVERTING, updated_at=Now(), **scheduler.NEW_PASS)
    scheduler.enqueue_documents(campaign.pk)
    return len(tenants)


def _revertible_tenants(campaign: Campaign, user_id: UUID | None) -> list[CampaignTenant]:
    live = campaign.tenants.filter(state=TenantState.LIVE)
    tenants = list(live.filter(user_id=_tenant(campaign, user_id).user_id) if user_id else live)
    if not tenants:
        raise _state_error("There is no tenant that is cut over and still has its old vectors.")
    pinned = ActiveModel.objects.filter(pinned=True, pk__in=[tenant.user_id for tenant in tenants])
    pinned_ids = set(pinned.values_list("pk", flat=True))
    revertible = [tenant for tenant in tenants if tenant.user_id not in pinned_ids]
    if not revertible:
        raise campaign_scope.pinned_error(tenants[0].user_id)
    for model in {tenant.former_model for tenant in revertible}:
        require_embedder(model)
    return revertible


def settle_now(campaign: Campaign, *, by: str) -> Campaign:
    """Let the periodic task remove the old vectors of all live tenants now; then nothing can be rolled back."""
    if not campaign.tenants.filter(state=TenantState.LIVE).exists():
        raise _state_error("There is no tenant that is cut over and still has its old vectors.")
    Campaign.objects.filter(pk=campaign.pk).update(keep_seconds=0.0, updated_at=Now())
    log.info("Campaign %s is settled by %s.", campaign.pk, by)
    return _reload(campaign)


def _tenant(campaign: Campaign, user_id: UUID | str) -> CampaignTenant:
    try:
        tenant = campaign.tenants.filter(user_id=UUID(str(user_id))).first()
    except ValueError:
        tenant = None
    if tenant is None:
        raise not_found()
    return tenant


def _move(
    campaign: Campaign, sources: Sequence[str], to: str, *, by: str, reason: str | None = None, **columns: Any
) -> Campaign:
    row = Campaign.objects.filter(pk=campaign.pk, state__in=sources)
    if not row.update(state=to, reason=reason, updated_at=Now(), **columns):
        raise _state_error(f"This campaign is {_reload(campaign).state}; it would have to be {' or '.join(sources)}.")
    log.info("Campaign %s is %s by %s.", campaign.pk, to, by)
    return _reload(campaign)


def _reload(campaign: Campaign) -> Campaign:
    return Campaign.objects.get(pk=campaign.pk)


def pin(user_id: UUID, *, model: str, version: str, by: str) -> None:
    """Pin a tenant to a model; no campaign moves it. A tenant without passages starts with this model.

    Any other than the active model needs all its vectors, as between a cut-over and the settling: "VECTORS_MISSING".
    Raises ``ApiError("UNKNOWN_MODEL")`` too.
    """
    target = EmbeddingModel(model, version)
    require_embedder(target)
    with transaction.atomic():
        # The tenant's row of its open campaign is locked before the active model, as a cut-over does.
        tenant = (
            CampaignTenant.objects.select_for_update(of=("self",))
            .select_related("campaign")
            .filter(user_id=user_id, ended_at=None, campaign__kind=Campaign.Kind.REEMBED)
            .first()
        )
        defaults = {"embed_model": model, "embed_version": version}
        ActiveModel.objects.get_or_create(pk=user_id, defaults=defaults)
        live = tenant_workflow.lock_active_model(user_id)
        if live is None:  # never: the row is not deleted
            raise not_found()
        if (live.embed_model, live.embed_version) != (model, version):
            missing = len(shadow_vectors.uncovered_documents(user_id, target, most=MAX_COUNTED))
            if missing or (tenant is not None and tenant.state in CLEARING):
                number = f"{missing} or more" if missing == MAX_COUNTED else str(missing)
                detail = f"{number} documents of this tenant have no vectors of this model: re-embed them first."
                raise ApiError(VECTORS_MISSING, detail, field="model")
            tenant_workflow.set_active_model(live, target)
        if tenant:
            _update_pinned_tenant(tenant, target)
        ActiveModel.objects.filter(pk=user_id).update(pinned=True)
    log.info("Tenant %s is pinned to %s by %s.", user_id, target.label, by)


def unpin(user_id: UUID, *, by: str) -> None:
    """Let new campaigns move the tenant again; those that run have skipped it."""
    if not ActiveModel.objects.filter(pk=user_id, pinned=True).update(pinned=False):
        raise not_found()
    log.info("Tenant %s is unpinned by %s.", user_id, by)


def _update_pinned_tenant(tenant: CampaignTenant, model: EmbeddingModel) -> None:
    is_target = model == tenant.campaign.model
    waiting = (TenantState.WORKING, TenantState.HELD)
    columns: dict[str, Any] = {}
    if is_target and tenant.state in (*waiting, TenantState.REVERTING):
        columns = {"state": TenantState.LIVE, "cut_over_at": Now()}
    elif not is_target and tenant.state in (TenantState.LIVE, TenantState.REVERTING):
        columns = {"state": TenantState.ROLLED_BACK}
    elif not is_target and tenant.state in waiting:
        columns = {"state": TenantState.SKIPPED}
    if columns:
        own = CampaignTenant.objects.filter(pk=tenant.pk)
        own.update(reason=tenant_workflow.PINNED, updated_at=Now(), **columns)


def _state_error(detail: str) -> ApiError:
    return ApiError(CAMPAIGN_STATE, detail)


_COUNTS = {
    "done": Count("document_id", distinct=True, filter=Q(state=JobState.DONE)),
    "active": Count("pk", filter=Q(state__in=ACTIVE)),
    "failed": Count(
        "document_id", distinct=True, filter=Q(state=JobState.DEADLETTER) & ~Q(last_error__code__in=CANCELLED_CODES)
    ),
}


@dataclass(frozen=True, slots=True)
class Progress:
    """``documents`` at the start; ``done`` may be more: documents uploaded since are reindexed too."""

    documents: int
    done: int
    active: int
    failed: int
    cents: Decimal


def campaign_progress(campaign: Campaign) -> Progress:
    """Return a campaign's progress. Reads all of its jobs and purchases, by their indexes."""
    documents = campaign.tenants.aggregate(total=Sum("documents"))["total"] or 0
    jobs = UploadJob.objects.filter(campaign_id=campaign.pk).aggregate(**_COUNTS)
    return Progress(documents, jobs["done"], jobs["active"], jobs["failed"], ledger.spent_by_campaign(campaign.pk))


def progress_by_tenant(campaign: Campaign) -> dict[UUID, Progress]:
    jobs = UploadJob.objects.filter(campaign_id=campaign.pk).values("user_id").annotate(**_COUNTS)
    counted = {row.pop("user_id"): row for row in jobs}
    purchases = Purchase.objects.filter(campaign_id=campaign.pk).values_list("user_id").annotate(Sum("cents"))
    cents = dict(purchases)
    nothing = dict.fromkeys(_COUNTS, 0)
    return {
        user_id: Progress(documents=documents, cents=cents.get(user_id, Decimal(0)), **counted.get(user_id, nothing))
        for user_id, documents in campaign.tenants.values_list("user_id", "documents")
    }
