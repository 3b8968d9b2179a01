"""Vectors from a model that somebody else runs: reserved before the call, settled after it, refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from http import HTTPStatus
from math import ceil
from uuid import UUID

from accounts.errors import ApiError, ErrorCode
from embeddings import tokenizer as tokens
from embeddings.embedders import Embedder, Vectors
from embeddings.embedders.http_base import EmbedResponse, HttpEmbedder
from embeddings.error_codes import TEXT_REFUSED
from jobs.outcomes import Permanent, Retryable, Wait
from vendors import guard, ledger

# What a vendor answers when it is the request's content that it does not want.
TEXT_ERROR_STATUSES = {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}
RETRY_SECONDS = 5  # seconds


@dataclass(frozen=True, slots=True)
class Reservation:
    """A call that is about to be made. ``purchase_id`` is None where nothing is charged."""

    tokens: int
    purchase_id: UUID | None = None


def reserve_call(
    embedder: HttpEmbedder,
    tokens: int,
    *,
    user_id: UUID,
    stage: str,
    document_id: UUID | None = None,
    job_id: UUID | None = None,
    campaign_id: UUID | None = None,
    limited: bool = True,
) -> Reservation:
    """Write down a call of ``tokens`` before it is made, or raise what ``money.reserve`` raises.

    What is not ``limited`` is on a campaign's bill, not on the tenant's.
    """
    if not embedder.is_billed:
        return Reservation(tokens)
    purchase_id = ledger.reserve(
        user_id=user_id,
        vendor=embedder.vendor.name,
        model=embedder.model,
        unit="tokens",
        quantity=tokens,
        cents=embedder.cents(tokens),
        stage=stage,
        document_id=document_id,
        job_id=job_id,
        campaign_id=campaign_id,
        limited=limited,
    )
    return Reservation(tokens, purchase_id)


def settle_call(embedder: HttpEmbedder, order: Reservation, sold: EmbedResponse) -> Decimal:
    """Enter what was charged, in the caller's transaction; return the cents."""
    if order.purchase_id is None:
        return Decimal(0)
    charged = order.tokens if sold.tokens is None else sold.tokens
    cents = embedder.cents(charged)
    ledger.settle(order.purchase_id, quantity=charged, cents=cents)
    return cents


def record_failure(embedder: HttpEmbedder, order: Reservation | None, error: Exception) -> Exception:
    """Report a failed call; return what to raise. What the vendor certainly did not do is not paid."""
    if order and order.purchase_id and not guard.may_have_charged(error):
        ledger.void(order.purchase_id)
    return guard.record_failure(embedder.vendor, error)


def embed_texts(
    embedder: Embedder, texts: Sequence[str], *, user_id: UUID, stage: str, campaign_id: UUID | None = None
) -> Vectors:
    """Embed a few texts now, in one call that the user or the campaign pays for. Raises what gate and budget raise."""
    if not isinstance(embedder, HttpEmbedder):
        return embedder.embed(texts)
    expected = sum(tokens.count_many(texts))
    guard.acquire(embedder.vendor, tokens=expected)
    order = None
    try:
        order = reserve_call(embedder, expected, user_id=user_id, stage=stage, campaign_id=campaign_id)
        sold = embedder.call(texts)
    except Exception as error:
        outcome = record_failure(embedder, order, error)
        if outcome is error:
            raise
        raise outcome from error
    guard.record_success(embedder.vendor, sold.headers)
    settle_call(embedder, order, sold)
    return sold.vectors


@contextmanager
def as_api_errors(code: ErrorCode, detail: str, *, field: str) -> Iterator[None]:
    """Turn what a vendor or a budget holds up into a refusal: ``code``, 503, where it will go better later."""
    try:
        yield
    except Wait as postponed:
        seconds = max(1, ceil(postponed.seconds))
        if postponed.reason == ledger.BUDGET_SPENT:
            raise _spent(seconds) from postponed
        raise ApiError(code, detail, retry_after=seconds) from postponed
    except Retryable as away:
        seconds = max(RETRY_SECONDS, ceil(away.retry_after))
        raise ApiError(code, detail, retry_after=seconds) from away
    except guard.VendorRefused as refused:
        if refused.status not in TEXT_ERROR_STATUSES:
            raise ApiError(code, detail, retry_after=RETRY_SECONDS) from refused
        raise ApiError(TEXT_REFUSED, "The embedding service refuses this text.", field=field) from refused
    except Permanent as never:
        if never.code != ledger.BUDGET_TOO_SMALL:
            raise
        raise _spent(None) from never


def _spent(retry_after: int | None) -> ApiError:
    detail = "The day's budget does not have what this costs."
    return ApiError(ledger.BUDGET_SPENT, detail, retry_after=retry_after)
