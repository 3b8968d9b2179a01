"""Billed embedding calls: reservation in the ledger before the call, settlement after it, failures as API errors."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from http import HTTPStatus
from math import ceil
from uuid import UUID

from accounts.error_codes import ApiError, ErrorCode
from embeddings import tokenizer
from embeddings.embedders import Embedder, Vectors
from embeddings.embedders.http_base import EmbedResponse, HttpEmbedder
from embeddings.error_codes import TEXT_REFUSED
from jobs.outcomes import Permanent, Retryable, Wait
from vendors import call_failures, calls, ledger

# Statuses by which a vendor refuses the content of a request.
TEXT_ERROR_STATUSES = {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}
RETRY_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Reservation:
    """Ledger entry of a call that is about to be made. ``purchase_id`` is None where nothing is charged."""

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
    """Reserve the price of a call of ``tokens``, or raise what ``ledger.reserve`` raises.

    A call that is not ``limited`` is on a campaign's bill, not on the tenant's.
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


def settle_call(embedder: HttpEmbedder, reservation: Reservation, response: EmbedResponse) -> Decimal:
    """Enter the charge of a call in the ledger, in the caller's transaction; return the cents."""
    if reservation.purchase_id is None:
        return Decimal(0)
    charged = reservation.tokens if response.tokens is None else response.tokens
    cents = embedder.cents(charged)
    ledger.settle(reservation.purchase_id, quantity=charged, cents=cents)
    return cents


def record_failure(embedder: HttpEmbedder, reservation: Reservation | None, error: Exception) -> Exception:
    """Report a failed call and return the outcome to raise. A call that the vendor cannot have charged is voided."""
    if reservation and reservation.purchase_id and not call_failures.may_have_charged(error):
        ledger.void(reservation.purchase_id)
    return calls.record_failure(embedder.vendor, error)


def embed_texts(
    embedder: Embedder, texts: Sequence[str], *, user_id: UUID, stage: str, campaign_id: UUID | None = None
) -> Vectors:
    """Embed a few texts in one call, billed to the user or the campaign. Raises what guard and ledger raise."""
    if not isinstance(embedder, HttpEmbedder):
        return embedder.embed(texts)
    tokens = sum(tokenizer.count_many(texts))
    calls.acquire(embedder.vendor, tokens=tokens)
    reservation = None
    try:
        reservation = reserve_call(embedder, tokens, user_id=user_id, stage=stage, campaign_id=campaign_id)
        response = embedder.call(texts)
    except Exception as error:
        outcome = record_failure(embedder, reservation, error)
        if outcome is error:
            raise
        raise outcome from error
    calls.record_success(embedder.vendor, response.headers)
    settle_call(embedder, reservation, response)
    return response.vectors


@contextmanager
def as_api_errors(code: ErrorCode, detail: str, *, field: str) -> Iterator[None]:
    """Turn a failed or postponed call into an ``ApiError``: 503 with ``code`` where a later try may succeed."""
    try:
        yield
    except Wait as postponed:
        seconds = max(1, ceil(postponed.seconds))
        if postponed.reason == ledger.BUDGET_SPENT:
            raise _budget_spent(seconds) from postponed
        raise ApiError(code, detail, retry_after=seconds) from postponed
    except Retryable as failure:
        seconds = max(RETRY_SECONDS, ceil(failure.retry_after))
        raise ApiError(code, detail, retry_after=seconds) from failure
    except calls.VendorRefused as refused:
        if refused.status not in TEXT_ERROR_STATUSES:
            raise ApiError(code, detail, retry_after=RETRY_SECONDS) from refused
        raise ApiError(TEXT_REFUSED, "The embedding service refuses this text.", field=field) from refused
    except Permanent as failure:
        if failure.code != ledger.BUDGET_TOO_SMALL:
            raise
        raise _budget_spent(None) from failure


def _budget_spent(retry_after: int | None) -> ApiError:
    detail = "The price of this request exceeds what is left of the day's budget."
    return ApiError(ledger.BUDGET_SPENT, detail, retry_after=retry_after)
