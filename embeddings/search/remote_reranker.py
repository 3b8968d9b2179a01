"""Reranker over HTTP, optional: the candidates ranked by the service at RERANKER, behind the gate of all vendors."""

import json
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from typing import Any
from uuid import UUID

import httpcore
import httpx
from django.conf import settings

from embeddings import tokenizer
from embeddings.embedders import http_base
from embeddings.embedders.registry import replace_surrogates
from embeddings.search.results import RetrievedChunk
from jobs.outcomes import StageFailure, Wait
from jobs.safe_errors import safe_error_name
from vendors import call_failures, calls, http_deadline, ledger
from vendors.call_failures import InvalidResponse
from vendors.vendor_account import Vendor

log = logging.getLogger("accessa.embeddings")

VENDOR = "reranker"
MAX_BODY_BYTES = 10_000_000  # Jina repeats the passages
MAX_TOKENS = 450  # of a passage: models read 512 tokens of question and passage together
SCORES = ("relevance_score", "score")  # Cohere and Jina; Text Embeddings Inference


def is_configured() -> bool:
    return bool(settings.RERANKER)


def rerank(query: str, chunks: Sequence[RetrievedChunk], *, user_id: UUID) -> list[RetrievedChunk]:
    """Return the chunks in the service's order, with its scores; in their own order where it fails in any way.

    ``user_id`` pays. Call outside of transactions. A search never fails by it, nor waits longer than
    RERANKER_TIMEOUT_SECONDS.
    """
    if len(chunks) < 2:
        return list(chunks)
    try:
        scores = _buy_scores(query, [_passage(chunk) for chunk in chunks], user_id)
    except (Wait, StageFailure, httpx.HTTPError, httpx.InvalidURL) as failure:
        log.warning("The reranker is not used: %s", safe_error_name(failure))
        return list(chunks)
    order = sorted(range(len(chunks)), key=lambda at: -scores[at])
    return [replace(chunks[at], ranked=replace(chunks[at].ranked, score=scores[at])) for at in order]


def _passage(chunk: RetrievedChunk) -> str:
    """Return what is ranked: a passage does not say its heading path."""
    text = "\n".join(filter(None, (" > ".join(chunk.headings), chunk.text)))
    return tokenizer.truncate(replace_surrogates(text), MAX_TOKENS)


def _vendor() -> Vendor:
    return Vendor(VENDOR, f"{settings.RERANKER} {settings.RERANKER_API_KEY}", requests_per_minute=0)


def _buy_scores(query: str, texts: Sequence[str], user_id: UUID) -> list[float]:
    """Make one call, billed to the user where a call has a price; return a score for each text."""
    vendor, price = _vendor(), Decimal(str(settings.RERANKER_CENTS_PER_CALL))
    calls.acquire(vendor)
    purchase_id = None
    try:
        if price:
            tokens = tokenizer.count_tokens(query) + sum(tokenizer.count_many(texts))
            purchase_id = ledger.reserve(
                user_id=user_id, cents=price, vendor=VENDOR, model=settings.RERANKER_MODEL or VENDOR, stage="search",
                unit="tokens", quantity=tokens,
            )  # fmt: skip
        with calls.record_call(vendor, "rerank"):
            scores = parse_scores(_post(request_body(query, texts)), len(texts))
    except Exception as error:
        if purchase_id and not call_failures.may_have_charged(error):
            ledger.void(purchase_id)
        outcome = calls.record_failure(vendor, error)
        if outcome is error:
            raise
        raise outcome from error
    calls.record_success(vendor)
    if purchase_id:
        ledger.settle(purchase_id, quantity=tokens, cents=price)
    return scores


def request_body(query: str, texts: Sequence[str]) -> dict[str, Any]:
    """Return Cohere's and Jina's request where a model is named, else that of Text Embeddings Inference.

    https://docs.cohere.com/reference/rerank, https://jina.ai/reranker,
    https://huggingface.github.io/text-embeddings-inference
    """
    if settings.RERANKER_MODEL:
        return {"model": settings.RERANKER_MODEL, "query": query, "documents": list(texts), "top_n": len(texts)}
    return {"query": query, "texts": list(texts), "truncate": True}


def parse_scores(content: bytes, count: int) -> list[float]:
    """Return the scores in the order of the texts. Raises ``InvalidResponse`` unless each text has one number."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise InvalidResponse("The answer is not JSON.") from None
    rows = body.get("results") if isinstance(body, dict) else body
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidResponse("The answer has no list of scores.")
    scores = {row.get("index"): score for row in rows if (score := _score(row)) is not None}
    if len(rows) != count or scores.keys() != set(range(count)):
        raise InvalidResponse("The answer does not have a score for each text.")
    return [scores[at] for at in range(count)]


def _score(row: Mapping[str, Any]) -> float | None:
    score = next((row[name] for name in SCORES if name in row), None)
    if type(row.get("index")) is not int or isinstance(score, bool) or not isinstance(score, (int, float)):
        return None
    try:
        return float(score) if isfinite(score) else None
    except OverflowError:  # an integer of hundreds of digits
        return None


def _post(body: dict[str, Any]) -> bytes:
    seconds = settings.RERANKER_TIMEOUT_SECONDS
    headers = {"Authorization": f"Bearer {settings.RERANKER_API_KEY}"} if settings.RERANKER_API_KEY else {}
    with _client_lock:
        client = _client(seconds, os.getpid())
    deadline = time.monotonic() + seconds
    with client.stream("POST", settings.RERANKER, json=body, headers=headers) as response:
        content = http_base.read_body(response.iter_bytes(), deadline, most=MAX_BODY_BYTES)
        response.raise_for_status()
    return content


_client_lock = threading.Lock()  # the cache alone lets concurrent threads create one each


@lru_cache(maxsize=2)
def _client(seconds: float, process: int) -> httpx.Client:
    """Return one client a process: connections do not survive a fork. A .netrc would replace the key's header."""
    transport = http_deadline.deadline_transport(httpx, httpcore, seconds)
    return httpx.Client(transport=transport, timeout=seconds, trust_env=False)
