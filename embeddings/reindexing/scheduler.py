"""Campaign scheduler: enqueue the next document of each tenant in turn, up to CAMPAIGN_JOBS jobs at once."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import Q
from django.db.models.functions import Now

from accounts.common_error_codes import not_found
from accounts.errors import ApiError
from documents.models import Document
from documents.parsers.registry import parser_name
from documents.replacement_parses import REPARSE
from embeddings import active_model
from embeddings.chunking import chunkers
from embeddings.embedders import registry
from embeddings.embedders.registry import DIMENSIONS, Embedder, EmbeddingModel
from embeddings.models import RECHUNK, REEMBED, STAGED
from embeddings.reindexing import campaign_scope, cost_estimates
from embeddings.reindexing.models import Campaign, CampaignTenant
from jobs import services
from jobs.choices import ACTIVE, CANCELLED_CODES
from jobs.models import UploadJob
from vendors import ledger

log = logging.getLogger("accessa.campaigns")

SPENT, UNAVAILABLE = "BUDGET_SPENT", "MODEL_UNAVAILABLE"
DOCUMENTS_PER_STEP = 20  # that one step reads
MAX_STEPS = 200  # of one call
NEW_PASS: dict[str, Any] = {"after_created": None, "after_document": None, "passed_at": None}  # over all documents

# Along the index on (user_id, created_at DESC, document_id): a step reads so many documents and their chunks, however
# many the tenant has. A document with a dead letter of this campaign waits for a person, not for a second purchase.
# A job that was cancelled, or gave way to the tenant's own, has not failed.
_DEAD = f"""j.campaign_id = %(campaign)s AND j.state = 'deadletter'
        AND coalesce(j.last_error ->> 'code', '') NOT IN {CANCELLED_CODES}"""
_DOCUMENTS = """
    FROM documents
    WHERE user_id = %(user)s AND created_at <= coalesce(%(created)s::timestamptz, 'infinity')
      AND (%(created)s::timestamptz IS NULL OR created_at < %(created)s::timestamptz OR document_id > %(document)s)
    ORDER BY created_at DESC, document_id"""
_NEXT_DOCUMENT = f"""
    SELECT d.document_id, d.created_at, w.tokens, coalesce(d.pages, 1) FROM (
        SELECT * {_DOCUMENTS} LIMIT %(most)s) d
    CROSS JOIN LATERAL (
        SELECT coalesce(sum({campaign_scope.TOKENS}), 0) AS tokens, count(*) AS passages
        FROM document_chunks c WHERE c.document_id = d.document_id AND c.embed_model IS NOT NULL {{is_left}}) w
    WHERE w.passages > 0 AND NOT EXISTS (
        SELECT FROM upload_jobs j WHERE j.document_id = d.document_id AND {_DEAD})
    ORDER BY d.created_at DESC, d.document_id LIMIT 1"""
_IS_NOT_EMBEDDED = """AND NOT (c.embed_model = %(model)s AND c.embed_version = %(version)s)
        AND (SELECT s.chunk_id FROM shadow_vectors s WHERE s.chunk_id = c.chunk_id
             AND s.embed_model = %(model)s AND s.embed_version = %(version)s LIMIT 1) IS NULL"""
# What is left to do of a document ``d`` or of its chunks ``c``.
IS_LEFT = {
    Campaign.Kind.REEMBED: _IS_NOT_EMBEDDED,
    Campaign.Kind.RECHUNK: campaign_scope.IS_NOT_RECHUNKED,
    Campaign.Kind.REPARSE: campaign_scope.IS_NOT_REPARSED,
}
NEXT_DOCUMENT = {kind: _NEXT_DOCUMENT.format(is_left=is_left) for kind, is_left in IS_LEFT.items()}
# A dead letter does not count when its document was deleted, or has got its vectors otherwise.
_FAILED = f"""
    SELECT count(*) FROM documents d
    WHERE d.document_id IN (SELECT j.document_id FROM upload_jobs j WHERE j.user_id = %(user)s AND {_DEAD})
      AND EXISTS (
        SELECT FROM document_chunks c WHERE c.document_id = d.document_id AND c.embed_model IS NOT NULL {{is_left}})"""
HAS_LEFT = """
    SELECT EXISTS (
        SELECT FROM documents d WHERE d.user_id = %(user)s AND EXISTS (
            SELECT FROM document_chunks c WHERE c.document_id = d.document_id AND c.embed_model IS NOT NULL)
        {is_left})"""
# The last document of a step in which no document is left to do.
LAST_OF_STEP = f"SELECT document_id, created_at {_DOCUMENTS} OFFSET %(most)s - 1 LIMIT 1"
# Tokens of a document to buy: each text once, and none that the tenant has of this model already (vector_reuse). A row
# comparison, which only the index on the texts' sha serves.
TOKENS_TO_BUY = f"""
    SELECT coalesce(sum(tokens), 0) FROM (
        SELECT DISTINCT ON (c.chunk_sha) {campaign_scope.TOKENS} AS tokens FROM document_chunks c
        WHERE c.document_id = %(document)s AND c.embed_model IS NOT NULL
          AND NOT EXISTS (
              SELECT FROM document_chunks o LEFT JOIN shadow_vectors s
                ON s.chunk_id = o.chunk_id AND s.embed_model = %(model)s AND s.embed_version = %(version)s
              WHERE (o.chunk_sha, o.user_id) = (c.chunk_sha, %(user)s)
                AND (s.chunk_id IS NOT NULL OR (o.embed_model = %(model)s AND o.embed_version = %(version)s)))
    ) bought"""
SEARCHABLE = """
    SELECT min(chunker_name || '@' || chunker_version), count(*) FROM document_chunks
    WHERE document_id = %(document)s AND embed_model IS NOT NULL"""
# Cents that the active jobs will still cost; their reservations are counted twice until they are settled.
PLANNED_CENTS = """
    SELECT coalesce(sum(greatest(0, coalesce(payload ->> 'planned_cents', payload ->> 'price_cents', '0')::numeric
                                    - cost_cents)), 0)
    FROM upload_jobs WHERE campaign_id = %s AND state IN ('queued', 'working', 'retryable')"""


def enqueue_documents(campaign_id: UUID, *, steps: int = MAX_STEPS) -> bool:
    """Enqueue documents until CAMPAIGN_JOBS are active; return whether there are more to look at.

    Each step enqueues one document, or passes over a few, in a transaction of its own under the campaign's lock: a kill
    leaves nothing half done.
    """
    return all(_run_step(campaign_id) for _ in range(steps))


def _run_step(campaign_id: UUID) -> bool:
    try:
        with transaction.atomic():
            campaign = Campaign.objects.select_for_update().filter(pk=campaign_id).first()
            if campaign is None or count_active_jobs(campaign_id) >= settings.CAMPAIGN_JOBS:
                return False
            states = Q(state=CampaignTenant.State.REVERTING)  # whatever state the campaign is in
            if campaign.state == Campaign.State.RUNNING:
                states |= Q(state=CampaignTenant.State.WORKING)
            tenant = campaign.tenants.filter(states, passed_at=None).order_by("fed_at").first()
            if tenant is None:
                return False
            if tenant_embedder(campaign, tenant) is None:
                hold_tenant(tenant)
                return True
            return _enqueue_next(campaign, tenant)
    except IntegrityError:  # the document was deleted just now, and is not met again
        return True


def _enqueue_next(campaign: Campaign, tenant: CampaignTenant) -> bool:
    """Enqueue one document, or pass over as many as a step reads; False when the budget does not allow it."""
    params = _query_params(campaign, tenant)
    with connection.cursor() as cursor:
        cursor.execute(NEXT_DOCUMENT[Campaign.Kind(campaign.kind)], params)
        row = cursor.fetchone()
        if row is None:  # nothing left to do in this step
            cursor.execute(LAST_OF_STEP, params)
            if last := cursor.fetchone():
                _move_cursor(tenant, last[1], last[0], tenant.reason)
            else:
                CampaignTenant.objects.filter(pk=tenant.pk).update(passed_at=Now(), updated_at=Now())
            return True
        document_id, created_at, tokens, pages = row
        if campaign.kind == Campaign.Kind.REEMBED:  # of others the new chunks are not known: all may be bought
            cursor.execute(TOKENS_TO_BUY, {**params, "document": document_id})
            (tokens,) = cursor.fetchone()
    target = campaign_scope.Target(parser=campaign.parser)
    cents = cost_estimates.price(tenant_embedder(campaign, tenant), int(tokens))
    cents += cost_estimates.parse_price(target, pages)
    if tenant.state == CampaignTenant.State.WORKING and not fits_budget(campaign, cents):
        return False
    reason = None
    try:
        with transaction.atomic():
            job = _enqueue_document(campaign, tenant, document_id)
            payload = {**job.payload, "price_cents": float(cents)}
            UploadJob.objects.filter(pk=job.pk).update(payload=payload)
    except ApiError as error:  # busy, or deleted: met again in the next pass, if it is still there
        reason = error.code
    _move_cursor(tenant, created_at, document_id, reason)
    return True


def _enqueue_document(campaign: Campaign, tenant: CampaignTenant, document_id: UUID) -> UploadJob:
    if campaign.parser:
        return enqueue_reparse(document_id=document_id, campaign_id=campaign.pk, parser=campaign.parser)
    if campaign.chunker:
        return enqueue_rechunk(document_id=document_id, campaign_id=campaign.pk, chunker=campaign.chunker)
    return enqueue_reembed(document_id=document_id, campaign_id=campaign.pk, model=target_model(campaign, tenant))


def _query_params(campaign: Campaign, tenant: CampaignTenant) -> dict[str, Any]:
    place = {"created": tenant.after_created, "document": tenant.after_document, "most": DOCUMENTS_PER_STEP}
    own: dict[str, Any] = {"campaign": campaign.pk, "user": tenant.user_id, "chunker": campaign.chunker}
    own |= {"documents": campaign.document_ids}
    if campaign.parser:
        own |= campaign_scope.parser_params(campaign.parser)
        return own | place  # of which "version" is no model's
    return own | place | target_model(campaign, tenant).params


def enqueue_reembed(*, document_id: UUID, campaign_id: UUID, model: EmbeddingModel) -> UploadJob:
    """Enqueue the embedding of a document's searchable chunks with another model, whose vectors no search looks at.

    Raises ``ApiError``: "JOB_ALREADY_ACTIVE" while the document has a job, "NOT_FOUND" without searchable chunks.
    """
    document = Document.objects.filter(pk=document_id).first()
    with connection.cursor() as cursor:
        cursor.execute(SEARCHABLE, {"document": document_id})
        chunks_version, total = cursor.fetchone()
    if document is None or not total:
        raise not_found()
    return _enqueue(
        document,
        pipeline=REEMBED,
        campaign_id=campaign_id,
        chunks_version=document.chunks_version or chunks_version,
        embed_model=model.model,
        embed_version=model.version,
        payload={"vector_dim": DIMENSIONS},
        progress={"chunks_total": total, "chunks_done": total},
    )


def enqueue_rechunk(*, document_id: UUID, campaign_id: UUID, chunker: str) -> UploadJob:
    """Enqueue the splitting of a document's stored parse by another ``chunker`` (name@version); nothing is parsed.

    Raises ``ApiError``: "JOB_ALREADY_ACTIVE" while the document has a job, "NOT_FOUND" where it or its parse is gone.
    """
    label, document = chunkers.get_chunker(chunker).label, Document.objects.filter(pk=document_id).first()
    if document is None or document.parsed_path is None:
        raise not_found()
    payload = {"chunker": label}
    return _enqueue(document, pipeline=RECHUNK, campaign_id=campaign_id, chunks_version=label, payload=payload)


def enqueue_reparse(*, document_id: UUID, campaign_id: UUID, parser: str | None = None) -> UploadJob:
    """Enqueue a parse of a stored document by ``parser`` (a label; default: configured); it keeps its chunker.

    Raises ``ApiError``: "JOB_ALREADY_ACTIVE" while the document has a job, "NOT_FOUND" where it is gone.
    """
    document = Document.objects.filter(pk=document_id).first()
    if document is None or document.stored_at is None:
        raise not_found()
    known = document.chunks_version in chunkers.all_chunkers()
    label = chunkers.get_chunker((known and document.chunks_version) or settings.CHUNKER).label
    payload = {"chunker": label, "read_by": parser_name(parser) if parser else None}
    return _enqueue(document, pipeline=REPARSE, campaign_id=campaign_id, chunks_version=label + STAGED, payload=payload)


def _enqueue(document: Document, **fields: Any) -> UploadJob:
    """Enqueue the document's only active job: it is claimed when nothing else is due, and billed to the campaign."""
    return services.enqueue(
        user_id=document.user_id,
        document_id=document.pk,
        raw_path=document.raw_path,
        parsed_path=document.parsed_path,
        parsed_sha256=document.parsed_sha256,
        **fields,
    )


def _move_cursor(tenant: CampaignTenant, created: datetime, document_id: UUID, reason: str | None) -> None:
    CampaignTenant.objects.filter(pk=tenant.pk).update(
        after_created=created, after_document=document_id, reason=reason, fed_at=Now(), updated_at=Now()
    )


def target_model(campaign: Campaign, tenant: CampaignTenant) -> EmbeddingModel:
    """Return the model that this tenant's documents are embedded with: the old one during a rollback."""
    return tenant.former_model if tenant.state == CampaignTenant.State.REVERTING else campaign.model


def tenant_embedder(campaign: Campaign, tenant: CampaignTenant) -> Embedder | None:
    """Return the embedder of the tenant's documents: unless a model is the target, the active model's.

    None: it is not configured.
    """
    is_reembed = campaign.kind == Campaign.Kind.REEMBED
    return registry.find_embedder(
        target_model(campaign, tenant) if is_reembed else active_model.active_model(tenant.user_id)
    )


def hold_tenant(tenant: CampaignTenant) -> None:
    """Hold the tenant until its model is configured again; one that is reverting stays in that state."""
    is_reverting = tenant.state == CampaignTenant.State.REVERTING
    columns: dict[str, Any] = {"passed_at": Now()} if is_reverting else {"state": CampaignTenant.State.HELD}
    row = CampaignTenant.objects.filter(pk=tenant.pk, state=tenant.state)
    row.update(reason=UNAVAILABLE, updated_at=Now(), **columns)
    log.error("Tenant %s of campaign %s waits: its model is not configured.", tenant.user_id, tenant.campaign_id)


def hold_tenants_without_model(campaign: Campaign) -> None:
    """Hold tenants whose jobs wait for a missing model: they would keep the others' places in the queue."""
    states = [CampaignTenant.State.WORKING, CampaignTenant.State.REVERTING]
    queued = UploadJob.objects.filter(campaign_id=campaign.pk, state__in=ACTIVE).values("user_id")
    for tenant in list(campaign.tenants.filter(state__in=states, user_id__in=queued)):
        if tenant_embedder(campaign, tenant) is None:
            hold_tenant(tenant)
            cancel_jobs(campaign.pk, [tenant.user_id], by="campaign")


def count_active_jobs(campaign_id: UUID, user_id: UUID | None = None) -> int:
    jobs = UploadJob.objects.filter(campaign_id=campaign_id, state__in=ACTIVE)
    return (jobs.filter(user_id=user_id) if user_id else jobs).count()


def count_failed_documents(campaign: Campaign, tenant: CampaignTenant) -> int:
    """Count the documents that are left to do and have a dead letter of this campaign."""
    sql = _FAILED.format(is_left=IS_LEFT[Campaign.Kind(campaign.kind)])
    with connection.cursor() as cursor:
        cursor.execute(sql, _query_params(campaign, tenant))
        return int(cursor.fetchone()[0])


def has_documents_left(campaign: Campaign, tenant: CampaignTenant) -> bool:
    """Tell whether a searchable document is not yet rechunked or reparsed; read once a pass."""
    with connection.cursor() as cursor:
        cursor.execute(HAS_LEFT.format(is_left=IS_LEFT[Campaign.Kind(campaign.kind)]), _query_params(campaign, tenant))
        return bool(cursor.fetchone()[0])


def cancel_jobs(campaign_id: UUID, user_ids: Sequence[UUID], *, by: str) -> None:
    """Cancel these tenants' active jobs; their vectors are kept where a new re-embedding finds them."""
    for job in list(UploadJob.objects.filter(campaign_id=campaign_id, user_id__in=user_ids, state__in=ACTIVE)):
        with suppress(ApiError):  # it ended by itself meanwhile
            services.cancel(job, by=by)


def fits_budget(campaign: Campaign, cents: Decimal) -> bool:
    """Tell whether the budget has this much left; a campaign without active jobs is paused otherwise."""
    if campaign.budget_cents is None or not cents:
        return True
    with connection.cursor() as cursor:
        cursor.execute(PLANNED_CENTS, [campaign.pk])
        (planned,) = cursor.fetchone()
    if ledger.spent_by_campaign(campaign.pk) + planned + cents <= campaign.budget_cents:
        return True
    if not count_active_jobs(campaign.pk):  # otherwise tried again when those have ended and their cost is known
        running = Campaign.objects.filter(pk=campaign.pk, state=Campaign.State.RUNNING)
        running.update(state=Campaign.State.PAUSED, reason=SPENT, updated_at=Now())
    return False
