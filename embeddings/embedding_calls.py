"""Calls of embedders: billed in the ledger, several at once, each response saved on arrival, failures as outcomes."""

import contextvars
import logging
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from http import HTTPStatus
from itertools import accumulate
from math import ceil
from threading import BoundedSemaphore
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from accounts.errors import ApiError, ErrorCode
from embeddings import tokenizer
from embeddings.embedders.http_base import EmbedResponse, HttpEmbedder
from embeddings.embedders.registry import Embedder, Vectors
from embeddings.error_codes import TEXT_REFUSED
from jobs.claims import ClaimLost
from jobs.outcomes import Permanent, Retryable, Wait
from vendors import call_failures, calls, ledger
from vendors.error_codes import BUDGET_SPENT, BUDGET_TOO_SMALL, VENDOR_MISCONFIGURED
from vendors.rate_limit import TokenBudgetSpent

log = logging.getLogger("accessa.embeddings")

# Statuses by which a vendor refuses the content of a request.
TEXT_ERROR_STATUSES = {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}
RETRY_SECONDS = 5
BUDGET_SPENT_DETAIL = "The price of this request exceeds what is left of the day's budget."
MAX_REFUSED = 20  # texts refused one by one and none accepted: then it is not the texts
MISCONFIGURED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Reservation:
    """Ledger entry of a call that is about to be made. ``purchase_id`` is None where nothing is charged."""

    tokens: int
    purchase_id: UUID | None = None


def reserve_call(embedder: HttpEmbedder, tokens: int, **purchase: Any) -> Reservation:
    """Reserve the price of a call of ``tokens``; ``purchase`` are further arguments of ``ledger.reserve``.

    Raises what ``ledger.reserve`` raises. A call that is not ``limited`` is on a campaign's bill, not on the tenant's.
    """
    if not embedder.is_billed:
        return Reservation(tokens)
    purchase |= {"vendor": embedder.vendor.name, "model": embedder.model, "cents": embedder.cents(tokens)}
    return Reservation(tokens, ledger.reserve(unit="tokens", quantity=tokens, **purchase))


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
        if postponed.reason == BUDGET_SPENT:
            raise ApiError(BUDGET_SPENT, BUDGET_SPENT_DETAIL, retry_after=seconds) from postponed
        raise ApiError(code, detail, retry_after=seconds) from postponed
    except Retryable as failure:
        seconds = max(RETRY_SECONDS, ceil(failure.retry_after))
        raise ApiError(code, detail, retry_after=seconds) from failure
    except calls.VendorRefused as refused:
        if refused.status not in TEXT_ERROR_STATUSES:
            raise ApiError(code, detail, retry_after=RETRY_SECONDS) from refused
        raise ApiError(TEXT_REFUSED, "The embedding service refuses this text.", field=field) from refused
    except Permanent as failure:
        if failure.code != BUDGET_TOO_SMALL:
            raise
        raise ApiError(BUDGET_SPENT, BUDGET_SPENT_DETAIL) from failure


class ModelChanged(Exception):
    """The tenant's active model has changed: vectors of the planned model are no longer bought."""


class EmbeddableText(Protocol):
    @property
    def text(self) -> str: ...

    @property
    def tokens(self) -> int: ...


T = TypeVar("T", bound=EmbeddableText)
Settle = Callable[[], Decimal]


class EmbeddingTask(ABC, Generic[T]):
    """Texts to embed, their bill, and the place where their vectors go. All methods run in the caller's thread."""

    max_in_flight = 0  # calls beside the one whose response is being saved; 0: one call after another
    splits_over_budget = False  # whether a batch that exceeds the budget of a whole day is halved

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self.saved_count = self.refused_count = 0  # texts

    @abstractmethod
    def next_batch(self) -> Sequence[T]:
        """Return the texts of the next call; none when all have been returned."""

    @abstractmethod
    def reserve(self, embedder: HttpEmbedder, tokens: int) -> Reservation:
        """Reserve the price of a call, inside ``transaction()``. Raises ``ModelChanged`` to end the task."""

    @abstractmethod
    def save(self, batch: Sequence[T], vectors: Vectors, settle: Settle) -> None:
        """Store the vectors of a call. ``settle`` enters its charge in the ledger and returns the cents."""

    def refuse(self, text: T) -> None:
        """Note a text that the model does not take."""

    def transaction(self) -> AbstractContextManager[object]:
        return nullcontext()

    def stop_reason(self) -> ErrorCode | None:
        """Return why no further call may begin, or None."""
        return None


def run_task(task: EmbeddingTask[T]) -> None:
    """Embed all texts of a task. Calls in flight are awaited and saved, whatever ends the loop.

    Raises what ends it: an outcome of the ledger or the vendor, ``Wait`` with the task's stop reason,
    ``ModelChanged``, or the refusal itself when the vendor refuses ``MAX_REFUSED`` texts and takes none.
    """
    if isinstance(task.embedder, HttpEmbedder):
        _ConcurrentCalls(task, task.embedder).run()
        return
    batches = _Batches(task)
    while batch := batches.pop():
        try:
            vectors = task.embedder.embed([each.text for each in batch])
        except calls.VendorRefused as refused:
            batches.refuse(batch, refused)
            continue
        task.saved_count += len(batch)
        task.save(batch, vectors, Decimal)


class _Batches(Generic[T]):
    """Batches of a task, with those that are to be tried again, whole or in halves."""

    def __init__(self, task: EmbeddingTask[T]) -> None:
        self._task = task
        self._queue: list[Sequence[T]] = []  # the last is the next

    def pop(self) -> Sequence[T]:
        return self._queue.pop() if self._queue else self._task.next_batch()

    def put_back(self, batch: Sequence[T]) -> None:
        self._queue += [batch] if batch else []

    def bisect(self, batch: Sequence[T]) -> bool:
        """Queue the halves of a batch; False for a single text."""
        half = len(batch) // 2
        self._queue += [batch[half:], batch[:half]] if half else []
        return bool(half)

    def shrink(self, batch: Sequence[T], tokens: int) -> bool:
        """Queue the first texts of a batch that make up ``tokens`` before the others; False below a quarter of it.

        Calls that are much smaller would spend the requests of the minute instead of its tokens.
        """
        sums = list(accumulate(each.tokens for each in batch))
        fitting = bisect_right(sums, tokens)
        if not fitting or 4 * sums[fitting - 1] < sums[-1]:
            return False
        self.put_back(batch[fitting:])
        self.put_back(batch[:fitting])
        return True

    def refuse(self, batch: Sequence[T], refused: calls.VendorRefused) -> None:
        """Bisect a refused batch down to the text that is not accepted. Raises where it is not the text's fault."""
        if refused.status not in TEXT_ERROR_STATUSES:  # a wrong address or model
            log.error("Embeddings with %s are refused with status %d.", self._task.embedder.model, refused.status)
            raise Wait(MISCONFIGURED_SECONDS, VENDOR_MISCONFIGURED) from refused
        if not self.bisect(batch):
            self._task.refused_count += 1
            self._task.refuse(batch[0])
            if self._task.refused_count >= MAX_REFUSED and not self._task.saved_count:
                raise refused


class _ConcurrentCalls(Generic[T]):
    def __init__(self, task: EmbeddingTask[T], embedder: HttpEmbedder) -> None:
        self._task, self._embedder, self._batches = task, embedder, _Batches(task)
        self._in_flight: dict[Future[EmbedResponse], tuple[Sequence[T], Reservation]] = {}
        self._slots = BoundedSemaphore(max(1, task.max_in_flight))
        self._max_calls = task.max_in_flight + 1  # one response is read while the others are in flight
        self._failure: BaseException | None = None

    def run(self) -> None:
        with ThreadPoolExecutor(self._max_calls, thread_name_prefix="embed") as self._pool:
            while True:
                self._launch()
                if not self._in_flight:
                    break
                if self._failure is None:
                    self._batches.put_back(self._batches.pop())  # read ahead: at hand when a call returns
                self._collect()
        if self._failure:
            raise self._failure

    def _launch(self, *, is_saving: bool = False) -> None:
        """Start calls as far as rate limit, budget and breaker allow. ``is_saving``: a response waits to be saved."""
        is_idle = not self._in_flight and not is_saving
        while self._failure is None and len(self._in_flight) < self._max_calls and (batch := self._batches.pop()):
            if reason := self._task.stop_reason():
                self._failure = Wait(0.0, reason)
                return
            try:
                reservation = self._reserve(sum(each.tokens for each in batch), is_idle=is_idle)
            except Wait as postponed:
                left = postponed.tokens_left if isinstance(postponed, TokenBudgetSpent) else 0
                if self._batches.shrink(batch, left):
                    continue
                self._batches.put_back(batch)
                if is_idle:  # otherwise tried again when the next response is in
                    self._failure = postponed
                return
            except (Permanent, ModelChanged) as error:
                is_over_budget = isinstance(error, Permanent) and error.code == BUDGET_TOO_SMALL
                if is_over_budget and self._task.splits_over_budget and self._batches.bisect(batch):
                    continue
                self._failure = error
                return
            call = contextvars.copy_context().run  # log lines and traces of the call carry the caller's context
            texts = [each.text for each in batch]
            future = self._pool.submit(call, partial(self._embedder.call, texts, slot=self._slots))
            self._in_flight[future] = batch, reservation
            is_idle = False

    def _reserve(self, tokens: int, *, is_idle: bool) -> Reservation:
        """Admit a call and reserve its price, in a transaction that a lost claim ends."""
        vendor = self._embedder.vendor
        if is_idle:  # inside the transaction it does not sleep, so that no response waits for the next call
            calls.acquire(vendor, tokens=tokens)
        try:
            with self._task.transaction():
                if not is_idle:
                    calls.acquire(vendor, tokens=tokens)
                return self._task.reserve(self._embedder, tokens)
        except (Wait, Permanent, ClaimLost, ModelChanged) as error:
            calls.record_failure(vendor, error)  # gives back the breaker's probe
            raise

    def _collect(self) -> None:
        """Wait for a response and save all that are in, successes before failures."""
        done, _ = wait(self._in_flight, return_when=FIRST_COMPLETED)
        for future in sorted(done, key=lambda each: each.exception() is not None):
            (batch, reservation), error = self._in_flight.pop(future), future.exception()
            if error is None:
                # Another call goes out first: a crash costs this response, the one being read, and those in flight.
                if self._task.max_in_flight:
                    self._launch(is_saving=True)
                response = future.result()
                calls.record_success(self._embedder.vendor, response.headers)
                self._task.saved_count += len(batch)
                self._task.save(batch, response.vectors, partial(settle_call, self._embedder, reservation, response))
            elif isinstance(error, Exception):
                outcome = record_failure(self._embedder, reservation, error)
                if isinstance(outcome, calls.VendorRefused):
                    try:
                        self._batches.refuse(batch, outcome)
                    except (Wait, calls.VendorRefused) as failure:
                        self._failure = failure
                elif self._failure is None or isinstance(outcome, Wait):  # a wait, if any, charges no attempt
                    self._failure = outcome
            else:
                self._failure = error
