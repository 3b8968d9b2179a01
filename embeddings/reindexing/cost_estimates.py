"""Cost estimates of campaigns: passages, tokens, cents and hours."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from django.conf import settings
from django.db import connection

from embeddings import tokenizer
from embeddings.embedders import registry
from embeddings.embedders.http_base import HttpEmbedder
from embeddings.embedders.registry import Embedder, EmbeddingModel
from embeddings.reindexing import canary_queries
from embeddings.reindexing.campaign_scope import Share, Target, select_tenants, validate_target
from vendors import ledger

SAMPLE = "SELECT text FROM document_chunks WHERE user_id = ANY(%s) AND embed_model IS NOT NULL LIMIT 64"
SAMPLE_SECONDS = 2.0
MAX_CENTS = Decimal(10) ** 9  # of a budget


@dataclass(frozen=True, slots=True)
class Estimate:
    """Size and price of a campaign.

    ``reused_tokens``, a part of ``tokens``, cost nothing. ``cents`` include the canaries' queries. Of a rechunk or a
    reparse, tokens and cents are the most: passages whose text stays the same keep their vectors. ``hours`` is the
    time that the target's model needs: by the vendor's rate limit, or by the rate of a sample embedded just now.
    """

    tenants: int
    documents: int
    passages: int
    tokens: int
    reused_tokens: int
    cents: Decimal
    hours: float
    pages: int = 0  # to parse


def estimate(
    *,
    kind: str,
    model: str | None = None,
    version: str | None = None,
    chunker: str | None = None,
    parser: str | None = None,
    user_ids: Sequence[UUID] | None = None,
    document_ids: Sequence[UUID] | None = None,
) -> Estimate:
    """Estimate a campaign. Writes nothing. Reads all chunks of the tenants: seconds for a million.

    Raises ``ApiError``: "UNKNOWN_MODEL", "UNKNOWN_CHUNKER", "NOTHING_TO_DO", "TENANT_PINNED" for one that was named,
    "CAMPAIGN_OPEN" when a tenant is in another campaign, "LAWS_NOT_RECHUNKED".
    """
    target = validate_target(
        kind=kind, model=model, version=version, chunker=chunker, parser=parser, document_ids=document_ids
    )
    shares = select_tenants(target, user_ids)
    by_model: dict[EmbeddingModel, list[Share]] = {}
    for share in shares:
        by_model.setdefault(target.model or share.active, []).append(share)
    hours = [_model_hours(registry.find_embedder(model), part) for model, part in by_model.items()]
    return Estimate(
        tenants=len(shares),
        documents=sum(share.documents for share in shares),
        passages=sum(share.passages for share in shares),
        tokens=sum(share.tokens for share in shares),
        reused_tokens=sum(share.reused_tokens for share in shares),
        cents=total_cents(target, shares),
        hours=max(hours, default=0.0),  # the models work in parallel
        pages=sum(share.pages for share in shares) if target.parser else 0,
    )


def price(embedder: Embedder | None, tokens: int) -> Decimal:
    """Return the cents of embedding so many tokens; 0 for a model that is not billed."""
    return embedder.cents(tokens) if isinstance(embedder, HttpEmbedder) and embedder.is_billed else Decimal(0)


def parse_price(target: Target, pages: int) -> Decimal:
    return ledger.parse_price(pages) if target.parse_vendor_charges else Decimal(0)


def total_cents(target: Target, shares: Sequence[Share]) -> Decimal:
    """Return the price of parsing and embedding the tenants' documents, and the canaries with both models."""
    cents = Decimal(0)
    for share in shares:
        active = registry.find_embedder(share.active)
        # The chunks of a rechunk or a reparse are embedded with the active model.
        chosen = registry.find_embedder(target.model) if target.model else active
        cents += price(chosen, share.billed_tokens) + parse_price(target, share.pages)
        if target.model:
            tokens = min(share.passages, canary_queries.MAX_DRAWN) * canary_queries.TOKENS
            cents += price(chosen, tokens) + price(active, tokens)
    return cents


def _model_hours(embedder: Embedder | None, shares: Sequence[Share]) -> float:
    tokens = sum(share.billed_tokens for share in shares)
    if embedder is None or not tokens:
        return 0.0
    if not isinstance(embedder, HttpEmbedder):
        rate = _tokens_per_second(embedder, [share.user_id for share in shares]) * int(settings.WORKERS)
        return tokens / rate / 3600
    vendor = embedder.vendor
    # A document's chunks go together, in as many calls as it has batches.
    calls = sum(max(share.documents, share.passages // embedder.batch_size) for share in shares)
    limits = ((tokens, vendor.tokens_per_minute), (calls, vendor.requests_per_minute))
    return max((amount / per_minute for amount, per_minute in limits if per_minute), default=0.0) / 60


def _tokens_per_second(embedder: Embedder, user_ids: list[UUID]) -> float:
    """Measure a local model on a sample of chunks; the first text loads the model."""
    with connection.cursor() as cursor:
        cursor.execute(SAMPLE, [user_ids])
        texts = [text for (text,) in cursor.fetchall()]
    embedder.embed(texts[:1])
    began, done = time.monotonic(), 0
    while done < len(texts) and time.monotonic() - began < SAMPLE_SECONDS:
        embedder.embed(texts[done : done + 8])
        done += 8
    seconds = time.monotonic() - began
    return max(1.0, float(sum(tokenizer.count_many(texts[:done])))) / max(seconds, 1e-6)
