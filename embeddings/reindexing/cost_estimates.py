"""What a campaign would take, before it is started: passages, tokens, cents, hours."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import QuerySet

from accounts.errors import ApiError
from accounts.system_tenant import SYSTEM_TENANT_ID
from embeddings import embedders
from embeddings import tokenizer as tokens
from embeddings.embedders import Embedder
from embeddings.embedders.http_base import HttpEmbedder
from embeddings.models import LiveModel
from embeddings.reindexing import canary_queries
from embeddings.reindexing.error_codes import CAMPAIGN_OPEN, LAWS_NOT_RECHUNKED, NOTHING_TO_DO, TENANT_PINNED
from embeddings.reindexing.models import CampaignTenant
from embeddings.reindexing.targets import Target, validate_target

# Some passages were cut before the chunker counted tokens.
TOKENS = "coalesce((c.meta ->> 'tokens')::bigint, length(c.text) / 4 + 1)"
# Each text is bought once: a copy, and what has the target's vector already, cost nothing.
REEMBED = f"""
    SELECT user_id, count(DISTINCT document_id), count(*), sum(tokens),
           coalesce(sum(tokens) FILTER (WHERE nth > 1 OR known), 0)
    FROM (
        SELECT user_id, document_id, tokens, covered,
               row_number() OVER (PARTITION BY {{scope}} chunk_sha ORDER BY covered, chunk_id) AS nth,
               bool_or(covered) OVER (PARTITION BY {{scope}} chunk_sha) AS known
        FROM (
            SELECT c.user_id, c.document_id, c.chunk_id, c.chunk_sha, {TOKENS} AS tokens,
                   (c.embed_model = %(model)s AND c.embed_version = %(version)s) OR EXISTS (
                       SELECT FROM shadow_vectors s WHERE s.chunk_id = c.chunk_id
                       AND s.embed_model = %(model)s AND s.embed_version = %(version)s) AS covered
            FROM document_chunks c WHERE c.user_id = ANY(%(users)s) AND c.embed_model IS NOT NULL) c
        ) texts
    WHERE NOT covered GROUP BY user_id"""
# How the new passages will be cut is not known, so neither is which of them are known already.
RECHUNK = f"""
    SELECT d.user_id, count(DISTINCT d.document_id), count(*), sum({TOKENS}), 0
    FROM documents d JOIN document_chunks c ON c.document_id = d.document_id
    WHERE d.user_id = ANY(%(users)s) AND d.chunks_version IS DISTINCT FROM %(chunker)s
      AND d.parsed_path IS NOT NULL AND c.embed_model IS NOT NULL GROUP BY d.user_id"""
SAMPLE = "SELECT text FROM document_chunks WHERE user_id = ANY(%s) AND embed_model IS NOT NULL LIMIT 64"
SAMPLE_SECONDS = 2.0
FEW = 10  # that a refusal names


@dataclass(frozen=True, slots=True)
class Share:
    """One tenant's part of an estimate."""

    live: LiveModel
    documents: int = 0
    passages: int = 0
    tokens: int = 0
    reused_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a campaign would move, and what for.

    ``tokens`` are all; of these ``reused_tokens`` cost nothing. ``cents`` include the canaries' queries. ``hours`` is
    how long the target's model needs: by the vendor's budget a minute, or by the rate of a sample embedded just now.
    """

    tenants: int
    documents: int
    passages: int
    tokens: int
    reused_tokens: int
    cents: Decimal
    hours: float
    shares: Sequence[Share] = field(default=(), repr=False)


def estimate(
    *,
    kind: str,
    model: str | None = None,
    version: str | None = None,
    chunker: str | None = None,
    user_ids: Sequence[UUID] | None = None,
) -> Estimate:
    """Return what a campaign would take. Writes nothing.

    Raises ``Refused``: "UNKNOWN_MODEL", "UNKNOWN_CHUNKER", "NOTHING_TO_DO", "TENANT_PINNED" for one that was named,
    "CAMPAIGN_OPEN" when a tenant is in another campaign, "LAWS_NOT_RECHUNKED". Reads all passages in question: seconds
    for a million.
    """
    target = validate_target(kind=kind, model=model, version=version, chunker=chunker)
    shares = select_tenants(target, user_ids)
    return Estimate(
        tenants=len(shares),
        documents=sum(share.documents for share in shares),
        passages=sum(share.passages for share in shares),
        tokens=sum(share.tokens for share in shares),
        reused_tokens=sum(share.reused_tokens for share in shares),
        cents=cents_of(target, shares),
        hours=_hours(target, shares),
        shares=shares,
    )


def select_tenants(target: Target, user_ids: Sequence[UUID] | None) -> list[Share]:
    """Return the tenants that a campaign moves, each with what it takes, or raise as ``estimate`` does.

    The corpus of laws is moved when it is named: its artifacts in the bucket go on holding the vectors of before.
    """
    if target.chunker and SYSTEM_TENANT_ID in (user_ids or ()):
        detail = "Laws are cut by article, by their own chunker: have them processed anew (force_reprocess) instead."
        raise ApiError(LAWS_NOT_RECHUNKED, detail, field="user_ids")
    found = LiveModel.objects.exclude(pk=SYSTEM_TENANT_ID) if user_ids is None else _named(user_ids)
    if target.model:
        found = found.exclude(embed_model=target.model, embed_version=target.version)
    if user_ids is not None and (pinned := found.filter(pinned=True).values_list("pk", flat=True).first()):
        raise pinned_error(pinned)
    movable = {live.pk: live for live in found.filter(pinned=False)}
    counted = {row[0]: tuple(map(int, row[1:])) for row in _counts(target, list(movable))}
    if target.chunker:
        movable = {pk: live for pk, live in movable.items() if pk in counted}
    _require(target, movable, pinned=found.filter(pinned=True).count())
    return [Share(live, *counted.get(pk, ())) for pk, live in sorted(movable.items())]


def pinned_error(user_id: UUID) -> ApiError:
    return ApiError(TENANT_PINNED, f"Tenant {user_id} is pinned; unpin it first.", field="user_ids")


def _named(user_ids: Sequence[UUID]) -> QuerySet[LiveModel]:
    found = LiveModel.objects.filter(pk__in=user_ids)
    nobody = sorted(set(user_ids).difference(found.values_list("pk", flat=True)))
    if nobody:
        few = ", ".join(str(each) for each in nobody[:FEW])
        detail = f"{len(nobody)} of the tenants have no searchable passages, or are not there: {few}."
        raise ApiError(NOTHING_TO_DO, detail, field="user_ids")
    return found


def _require(target: Target, movable: dict[UUID, LiveModel], *, pinned: int) -> None:
    if not movable:
        but = f", but {pinned} that {'is' if pinned == 1 else 'are'} pinned" if pinned else ""
        raise ApiError(NOTHING_TO_DO, f"No tenant has anything that is not of {target.label} already{but}.")
    busy = CampaignTenant.objects.filter(user_id__in=movable, ended_at=None).first()
    if busy:
        raise open_campaign_error(busy)


def open_campaign_error(busy: CampaignTenant | None) -> ApiError:
    where = f"Tenant {busy.user_id} is in campaign {busy.campaign_id}" if busy else "A tenant is in another campaign"
    return ApiError(CAMPAIGN_OPEN, f"{where}: finish, settle or cancel that first.", field="user_ids")


def _counts(target: Target, user_ids: list[UUID]) -> list[tuple[Any, ...]]:
    scope = "" if settings.REUSE_ACROSS_TENANTS else "user_id,"
    params = {"users": user_ids, "model": target.model, "version": target.version, "chunker": target.chunker}
    with connection.cursor() as cursor:
        cursor.execute(REEMBED.format(scope=scope) if target.model else RECHUNK, params)
        return list(cursor.fetchall())


def price(embedder: Embedder | None, quantity: int) -> Decimal:
    """Return the cents of embedding so many tokens: nothing where nobody sells it."""
    return embedder.cents(quantity) if isinstance(embedder, HttpEmbedder) and embedder.is_billed else Decimal(0)


def _embedder(target: Target, live: LiveModel) -> Embedder | None:
    """Return what embeds a tenant's passages in this campaign: a new cut is found with the model that is live."""
    return embedders.find_embedder(target.model or live.embed_model, target.version or live.embed_version)


def cents_of(target: Target, shares: Sequence[Share]) -> Decimal:
    """Return what it costs to embed the tenants' passages, and to ask each tenant's canaries of both models."""
    cents = Decimal(0)
    for share in shares:
        chosen = _embedder(target, share.live)
        cents += price(chosen, share.tokens - share.reused_tokens)
        if target.model:
            asked = min(share.passages, canary_queries.MOST) * canary_queries.TOKENS
            present = embedders.find_embedder(share.live.embed_model, share.live.embed_version)
            cents += price(chosen, asked) + price(present, asked)
    return cents


def _hours(target: Target, shares: Sequence[Share]) -> float:
    """Return the longest that any of the models takes: they work side by side."""
    work: dict[tuple[str, str], list[Share]] = {}
    for share in shares:
        live = share.live
        work.setdefault((target.model or live.embed_model, target.version or live.embed_version), []).append(share)
    return max((_time(embedders.find_embedder(*model), part) for model, part in work.items()), default=0.0)


def _time(embedder: Embedder | None, shares: Sequence[Share]) -> float:
    wanted = sum(share.tokens - share.reused_tokens for share in shares)
    if embedder is None or not wanted:
        return 0.0
    if not isinstance(embedder, HttpEmbedder):
        rate = _rate(embedder, [share.live.pk for share in shares]) * int(settings.WORKERS)
        return wanted / rate / 3600
    vendor = embedder.vendor
    # A document's passages go together, in as many calls as its batches.
    calls = sum(max(share.documents, share.passages // embedder.batch_size) for share in shares)
    limits = ((wanted, vendor.tokens_per_minute), (calls, vendor.requests_per_minute))
    return max((amount / a_minute for amount, a_minute in limits if a_minute), default=0.0) / 60


def _rate(embedder: Embedder, user_ids: list[UUID]) -> float:
    """Return the tokens a second of a model that runs here, by embedding a few passages; the first loads it."""
    with connection.cursor() as cursor:
        cursor.execute(SAMPLE, [user_ids])
        texts = [text for (text,) in cursor.fetchall()]
    embedder.embed(texts[:1])
    begun, done = time.monotonic(), 0
    while done < len(texts) and time.monotonic() - begun < SAMPLE_SECONDS:
        embedder.embed(texts[done : done + 8])
        done += 8
    seconds = time.monotonic() - begun
    return max(1.0, float(sum(tokens.count_many(texts[:done])))) / max(seconds, 1e-6)
