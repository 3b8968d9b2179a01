"""From a campaign to the queue: the next document of each tenant in turn, as many as may be under way at once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import Q
from django.db.models.functions import Now

from accounts.errors import ApiError
from embeddings import active_model, embedders, reindex_jobs
from embeddings.embedders import Embedder
from embeddings.reindexing import cost_estimates
from embeddings.reindexing.models import Campaign, CampaignTenant
from jobs import services
from jobs.models import UploadJob
from jobs.states import ACTIVE, CANCELLED_CODES
from vendors import ledger

log = logging.getLogger("accessa.campaigns")

SPENT, UNAVAILABLE = "BUDGET_SPENT", "MODEL_UNAVAILABLE"
AT_ONCE = 20  # documents that are looked at in one step
MOST_STEPS = 200  # in one feeding: whoever feeds has other things to do

# Down the index on (user_id, created_at DESC, document_id): a step reads so many documents and their passages, however
# many the tenant has. A document with a dead letter of this campaign waits for a person, not for a second purchase.
# One that was cancelled, or gave way to a tenant's own, has not failed.
_DEAD = f"""j.campaign_id = %(campaign)s AND j.state = 'deadletter'
        AND coalesce(j.last_error ->> 'code', '') NOT IN {CANCELLED_CODES}"""
_FROM_HERE = """
    FROM documents
    WHERE user_id = %(user)s AND created_at <= coalesce(%(created)s::timestamptz, 'infinity')
      AND (%(created)s::timestamptz IS NULL OR created_at < %(created)s::timestamptz OR document_id > %(document)s)
    ORDER BY created_at DESC, document_id"""
_STEP = f"""
    SELECT d.document_id, d.created_at, w.tokens, w.passages FROM (
        SELECT document_id, created_at, parsed_path, chunks_version {_FROM_HERE} LIMIT %(most)s) d
    CROSS JOIN LATERAL (
        SELECT coalesce(sum({cost_estimates.TOKENS}), 0) AS tokens, count(*) AS passages
        FROM document_chunks c WHERE c.document_id = d.document_id AND c.embed_model IS NOT NULL {{wanted}}) w
    WHERE w.passages > 0 AND NOT EXISTS (
        SELECT FROM upload_jobs j WHERE j.document_id = d.document_id AND {_DEAD})
    ORDER BY d.created_at DESC, d.document_id LIMIT 1"""
_TO_EMBED = """AND NOT (c.embed_model = %(model)s AND c.embed_version = %(version)s)
        AND (SELECT s.chunk_id FROM shadow_vectors s WHERE s.chunk_id = c.chunk_id
             AND s.embed_model = %(model)s AND s.embed_version = %(version)s LIMIT 1) IS NULL"""
_TO_CUT = "AND d.parsed_path IS NOT NULL AND d.chunks_version IS DISTINCT FROM %(chunker)s"
REEMBED, RECHUNK = _STEP.format(wanted=_TO_EMBED), _STEP.format(wanted=_TO_CUT)
# A dead letter of what was deleted, or has come to its vectors otherwise, keeps nobody waiting.
_FAILED = f"""
    SELECT count(*) FROM documents d
    WHERE d.document_id IN (SELECT j.document_id FROM upload_jobs j WHERE j.user_id = %(user)s AND {_DEAD})
      AND EXISTS (
        SELECT FROM document_chunks c WHERE c.document_id = d.document_id AND c.embed_model IS NOT NULL {{wanted}})"""
# Where the step's documents end, when none of them wants anything.
END = f"SELECT document_id, created_at {_FROM_HERE} OFFSET %(most)s - 1 LIMIT 1"
# What of a document is bought: each text once, and none that the tenant has of this model already (embeddings.reuse).
# A row comparison, which only the index on the texts' sha serves.
TO_BUY = f"""
    SELECT coalesce(sum(tokens), 0) FROM (
        SELECT DISTINCT ON (c.chunk_sha) {cost_estimates.TOKENS} AS tokens FROM document_chunks c
        WHERE c.document_id = %(document)s AND c.embed_model IS NOT NULL
          AND NOT EXISTS (
              SELECT FROM document_chunks o LEFT JOIN shadow_vectors s
                ON s.chunk_id = o.chunk_id AND s.embed_model = %(model)s AND s.embed_version = %(version)s
              WHERE (o.chunk_sha, o.user_id) = (c.chunk_sha, %(user)s)
                AND (s.chunk_id IS NOT NULL OR (o.embed_model = %(model)s AND o.embed_version = %(version)s)))
    ) bought"""
# What the jobs under way will still cost; what they have reserved is counted twice until it is settled.
PLANNED = """
    SELECT coalesce(sum(greatest(0, coalesce(payload ->> 'planned_cents', payload ->> 'price_cents', '0')::numeric
                                    - cost_cents)), 0)
    FROM upload_jobs WHERE campaign_id = %s AND state IN ('queued', 'working', 'retryable')"""


@dataclass(frozen=True, slots=True)
class NextDocument:
    """A document that wants something, and how much."""

    document_id: UUID
    created_at: datetime
    tokens: int


def enqueue_documents(campaign_id: UUID, *, steps: int = MOST_STEPS) -> bool:
    """Put the next documents into the queue until CAMPAIGN_JOBS are in it; return whether there is more to look at.

    A step feeds one document, or looks past a few, in a transaction of its own under the campaign's lock: whoever is
    killed leaves nothing half fed.
    """
    return all(_step(campaign_id) for _ in range(steps))


def _step(campaign_id: UUID) -> bool:
    try:
        return _fed(campaign_id)
    except IntegrityError:  # the document was deleted just now, and is not met again
        return True


def _fed(campaign_id: UUID) -> bool:
    with transaction.atomic():
        campaign = Campaign.objects.select_for_update().filter(pk=campaign_id).first()
        if campaign is None or count_active_jobs(campaign_id) >= settings.CAMPAIGN_JOBS:
            return False
        tenant = _in_turn(campaign)
        if tenant is not None and tenant_embedder(campaign, tenant) is None:
            hold_tenant(tenant)
            return True
        return tenant is not None and _feed(campaign, tenant)


def _in_turn(campaign: Campaign) -> CampaignTenant | None:
    """Return who was fed longest ago. A rollback goes on whatever state the campaign is in."""
    states = Q(state=CampaignTenant.State.REVERTING)
    if campaign.state == Campaign.State.RUNNING:
        states |= Q(state=CampaignTenant.State.WORKING)
    return campaign.tenants.filter(states, passed_at=None).order_by("fed_at").first()


def _feed(campaign: Campaign, tenant: CampaignTenant) -> bool:
    """Feed one document, or look past as many as one step sees; False when the budget does not allow it."""
    found = next_document(campaign, tenant)
    if found is None:
        _look_further(tenant)
        return True
    cents = cost_estimates.price(tenant_embedder(campaign, tenant), _to_buy(campaign, tenant, found))
    if tenant.state == CampaignTenant.State.WORKING and not fits_budget(campaign, cents):
        return False
    reason = None
    try:
        with transaction.atomic():
            job = _enqueue(campaign, tenant, found.document_id)
            priced = {**job.payload, "price_cents": float(cents)}
            UploadJob.objects.filter(pk=job.pk).update(payload=priced)
    except ApiError as refused:  # busy, or gone: met again in the next pass, if it is still there
        reason = refused.code
    _move(tenant, found.created_at, found.document_id, reason)
    return True


def next_document(campaign: Campaign, tenant: CampaignTenant) -> NextDocument | None:
    """Return the first of the next few documents that wants what the campaign brings."""
    sql = RECHUNK if campaign.kind == Campaign.Kind.RECHUNK else REEMBED
    with connection.cursor() as cursor:
        cursor.execute(sql, _sought(campaign, tenant))
        row = cursor.fetchone()
    return NextDocument(row[0], row[1], int(row[2])) if row else None


def _to_buy(campaign: Campaign, tenant: CampaignTenant, found: NextDocument) -> int:
    """Return how many of the document's tokens are paid for. How it will be cut anew is not known: then all of them."""
    if campaign.chunker:
        return found.tokens
    with connection.cursor() as cursor:
        cursor.execute(TO_BUY, {**_sought(campaign, tenant), "document": found.document_id})
        return int(cursor.fetchone()[0])


def _sought(campaign: Campaign, tenant: CampaignTenant) -> dict[str, Any]:
    model, version = target_model(campaign, tenant)
    return {
        "campaign": campaign.pk,
        "user": tenant.user_id,
        "created": tenant.after_created,
        "document": tenant.after_document,
        "most": AT_ONCE,
        "model": model,
        "version": version,
        "chunker": campaign.chunker,
    }


def target_model(campaign: Campaign, tenant: CampaignTenant) -> tuple[str, str]:
    """Return the model that this tenant's documents are embedded with: the old one when it is rolled back."""
    if tenant.state == CampaignTenant.State.REVERTING:
        return tenant.from_model or "", tenant.from_version or ""
    return campaign.embed_model or "", campaign.embed_version or ""


def tenant_embedder(campaign: Campaign, tenant: CampaignTenant) -> Embedder | None:
    """Return what embeds the tenant's documents; a new cut is found with the model that is live. None: it is gone."""
    if campaign.kind == Campaign.Kind.RECHUNK:
        now = active_model.active_model(tenant.user_id)
        return embedders.find_embedder(now.model, now.version)
    return embedders.find_embedder(*target_model(campaign, tenant))


def hold_tenant(tenant: CampaignTenant) -> None:
    """Let the tenant wait until the model that it needs is configured again; one that is going back stays so."""
    is_reverting = tenant.state == CampaignTenant.State.REVERTING
    columns: dict[str, Any] = {"passed_at": Now()} if is_reverting else {"state": CampaignTenant.State.HELD}
    own = CampaignTenant.objects.filter(pk=tenant.pk, state=tenant.state)
    own.update(reason=UNAVAILABLE, updated_at=Now(), **columns)
    log.error("Tenant %s of campaign %s waits: nothing makes its model.", tenant.user_id, tenant.campaign_id)


def hold_tenants_without_model(campaign: Campaign) -> None:
    """Hold those whose jobs wait for a model that is gone: they would keep the others' places in the queue."""
    states = [CampaignTenant.State.WORKING, CampaignTenant.State.REVERTING]
    queued = UploadJob.objects.filter(campaign_id=campaign.pk, state__in=ACTIVE).values("user_id")
    for tenant in list(campaign.tenants.filter(state__in=states, user_id__in=queued)):
        if tenant_embedder(campaign, tenant) is None:
            hold_tenant(tenant)
            cancel_jobs(campaign.pk, [tenant.user_id], by="campaign")


def _enqueue(campaign: Campaign, tenant: CampaignTenant, document_id: UUID) -> UploadJob:
    if campaign.chunker:
        return reindex_jobs.enqueue_rechunk(document_id=document_id, campaign_id=campaign.pk, chunker=campaign.chunker)
    model, version = target_model(campaign, tenant)
    return reindex_jobs.enqueue_reembed(document_id=document_id, campaign_id=campaign.pk, model=model, version=version)


def _look_further(tenant: CampaignTenant) -> None:
    with connection.cursor() as cursor:
        params = {"user": tenant.user_id, "created": tenant.after_created, "document": tenant.after_document}
        cursor.execute(END, {**params, "most": AT_ONCE})
        row = cursor.fetchone()
    if row:
        _move(tenant, row[1], row[0], tenant.reason)
    else:
        CampaignTenant.objects.filter(pk=tenant.pk).update(passed_at=Now(), updated_at=Now())


def _move(tenant: CampaignTenant, created: datetime, document_id: UUID, reason: str | None) -> None:
    CampaignTenant.objects.filter(pk=tenant.pk).update(
        after_created=created, after_document=document_id, reason=reason, fed_at=Now(), updated_at=Now()
    )


def count_active_jobs(campaign_id: UUID, user_id: UUID | None = None) -> int:
    """Return how many of the campaign's jobs are in the queue."""
    found = UploadJob.objects.filter(campaign_id=campaign_id, state__in=ACTIVE)
    return (found.filter(user_id=user_id) if user_id else found).count()


def count_failed_documents(campaign: Campaign, tenant: CampaignTenant) -> int:
    """Return how many documents want what the campaign brings and have a dead letter of it."""
    sql = _FAILED.format(wanted=_TO_CUT if campaign.kind == Campaign.Kind.RECHUNK else _TO_EMBED)
    with connection.cursor() as cursor:
        cursor.execute(sql, _sought(campaign, tenant))
        return int(cursor.fetchone()[0])


def cancel_jobs(campaign_id: UUID, user_ids: Sequence[UUID], *, by: str) -> None:
    """End these tenants' jobs that are in the queue; what was bought is kept where a new re-embedding finds it."""
    found = UploadJob.objects.filter(campaign_id=campaign_id, user_id__in=user_ids, state__in=ACTIVE)
    for job in list(found):
        with suppress(ApiError):  # it ended by itself meanwhile
            services.cancel(job, by=by)


def fits_budget(campaign: Campaign, cents: Decimal) -> bool:
    """Tell whether the budget has this much left; with nothing under way, a campaign without it is paused."""
    if campaign.budget_cents is None or not cents:
        return True
    with connection.cursor() as cursor:
        cursor.execute(PLANNED, [campaign.pk])
        (planned,) = cursor.fetchone()
    if ledger.spent_by_campaign(campaign.pk) + planned + cents <= campaign.budget_cents:
        return True
    if not count_active_jobs(campaign.pk):  # otherwise asked again when those have ended, and cost what they cost
        paused = Campaign.objects.filter(pk=campaign.pk, state=Campaign.State.RUNNING)
        paused.update(state=Campaign.State.PAUSED, reason=SPENT, updated_at=Now())
    return False
