"""The embed stage with a vendor's model: a few calls in the air, each answer kept the moment it lands."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import BoundedSemaphore
from typing import NamedTuple

from django.conf import settings

from embeddings import billed_calls, pending_chunks
from embeddings.billed_calls import Reservation
from embeddings.embedders.http_base import EmbedResponse, HttpEmbedder
from embeddings.error_codes import GAVE_WAY, TEXT_REFUSED
from embeddings.pending_chunks import PendingChunk
from jobs import failpoints
from jobs.claims import Claim, ClaimLost
from jobs.cluster import shared_memory
from jobs.error_codes import STOPPING
from jobs.outcomes import Permanent, Wait
from vendors import guard
from vendors.error_codes import VENDOR_MISCONFIGURED

log = logging.getLogger("accessa.embeddings")

HOPELESS = 20  # texts refused one by one and none accepted: then it is not the texts
MISCONFIGURED_SECONDS = 60.0
READ = 1  # answers that are read, out of the air, while others fly

Batch = Sequence[PendingChunk]


class ModelChanged(Exception):
    """The tenant has been cut over meanwhile: nothing more of the planned model is bought."""


class Flight(NamedTuple):
    batch: Batch
    order: Reservation


def embed(claim: Claim, embedder: HttpEmbedder) -> None:
    """Buy what is missing and buffer it. Whatever ends the try, calls that are in the air are awaited and kept.

    Raises ``Permanent("TEXT_REFUSED")`` for passages that the vendor does not take, once all others are in, and
    ``ModelChanged`` where no more of them are wanted.
    """
    with ThreadPoolExecutor(settings.EMBED_IN_FLIGHT + READ, thread_name_prefix="embed") as pool:
        Airport(claim, embedder, pool).run()


class Airport:
    """One try. All writes are made here, in the worker's own thread; the pool's threads only speak HTTP."""

    def __init__(self, claim: Claim, embedder: HttpEmbedder, pool: ThreadPoolExecutor) -> None:
        self._claim, self._embedder, self._pool = claim, embedder, pool
        progress = claim.job.progress
        self._done, self._total = int(progress["embeds_done"]), int(progress["embeds_total"])
        self._flying: dict[Future[EmbedResponse], Flight] = {}
        self._air = BoundedSemaphore(settings.EMBED_IN_FLIGHT)
        self._most = settings.EMBED_IN_FLIGHT + READ
        self._waiting: list[Batch] = []  # the last is the next
        self._after = -1  # the ordinal up to which the document was read
        self._all_read = False
        self._kept = self._refused = 0
        self._failure: BaseException | None = None

    def run(self) -> None:
        while True:
            self._launch()
            if not self._flying:
                break
            self._read_ahead()
            self._land()
        if self._failure:
            raise self._failure
        if self._refused:
            raise Permanent(TEXT_REFUSED, "The embedding service refuses one passage of this document.")

    def _launch(self, *, landed: bool = False) -> None:
        """Fill the air, as far as pace, budget and breaker allow; ``landed``: an answer waits to be written down."""
        idle = not self._flying and not landed
        while self._failure is None and len(self._flying) < self._most and (batch := self._next()):
            if shared_memory.is_stopping() or self._claim.should_yield():
                self._failure = Wait(0.0, STOPPING if shared_memory.is_stopping() else GAVE_WAY)
                return
            try:
                order = self._order(sum(item.tokens for item in batch), patient=idle)
            except Wait as held_back:
                self._waiting.append(batch)
                if idle:  # otherwise asked again when the next answer is in
                    self._failure = held_back
                return
            except (Permanent, ModelChanged) as never:
                self._failure = never
                return
            call = contextvars.copy_context().run  # log lines and traces of the call are about this job
            future = self._pool.submit(call, self._embedder.call, [item.text for item in batch], air=self._air)
            self._flying[future] = Flight(batch, order)
            idle = False

    def _read_ahead(self) -> None:
        """Have the next batch at hand when a call returns."""
        if not self._waiting and self._failure is None and (batch := self._next()):
            self._waiting.append(batch)

    def _next(self) -> Batch:
        if self._waiting:
            return self._waiting.pop()
        if self._all_read:
            return []
        size = min(settings.EMBED_BATCH, self._embedder.batch_size)
        found = pending_chunks.pending_batch(
            self._claim, self._embedder, after=self._after, size=size, most_tokens=settings.EMBED_BATCH_TOKENS
        )
        self._all_read = not found
        if found:
            self._after = found[-1].ord
        return found

    def _order(self, tokens: int, *, patient: bool) -> Reservation:
        """Admit a call and reserve its money; who has lost the claim meanwhile buys nothing."""
        vendor, job = self._embedder.vendor, self._claim.job
        if patient:  # inside a transaction it does not sleep, so that no answer has to wait for the next call
            guard.acquire(vendor, tokens=tokens)
        try:
            with self._claim.transaction():
                if not pending_chunks.is_model_still_wanted(self._claim):
                    raise ModelChanged
                if not patient:
                    guard.acquire(vendor, tokens=tokens)
                return billed_calls.reserve_call(
                    self._embedder,
                    tokens,
                    user_id=job.user_id,
                    stage=job.stage,
                    document_id=job.document_id,
                    job_id=job.pk,
                    limited=job.campaign_id is None,
                )
        except (Wait, Permanent, ClaimLost, ModelChanged) as held_back:
            guard.record_failure(vendor, held_back)  # gives back the leave to probe
            raise

    def _land(self) -> None:
        """Wait for an answer and write down all that are in, what was bought before what was not."""
        landed, _ = wait(self._flying, return_when=FIRST_COMPLETED)
        for future in sorted(landed, key=lambda each: each.exception() is not None):
            flight, error = self._flying.pop(future), future.exception()
            if error is None:
                # One call goes out meanwhile: a crash costs this answer, the one being read, and what is in the air.
                self._launch(landed=True)
                self._keep(flight, future.result())
            elif isinstance(error, Exception):
                self._lose(flight, error)
            else:
                self._failure = error

    def _keep(self, flight: Flight, sold: EmbedResponse) -> None:
        failpoints.failpoint("embedding:answered")
        guard.record_success(self._embedder.vendor, sold.headers)
        self._kept += len(flight.batch)
        self._done = min(self._done + len(flight.batch), self._total)
        with self._claim.transaction():
            pending_chunks.buffer_vectors(
                self._claim, self._embedder, [item.chunk_id for item in flight.batch], sold.vectors
            )
            cents = billed_calls.settle_call(self._embedder, flight.order, sold)
            reached = pending_chunks.progress_pct(self._done / self._total)
            self._claim.save_progress(progress={"embeds_done": self._done}, total_pct=reached, cost_cents=cents)
            if self._kept == len(flight.batch) and self._done < self._total:
                pending_chunks.log_first_vectors(self._claim)

    def _lose(self, flight: Flight, error: Exception) -> None:
        outcome = billed_calls.record_failure(self._embedder, flight.order, error)
        if isinstance(outcome, guard.VendorRefused):
            self._refuse(flight.batch, outcome)
        elif self._failure is None or isinstance(outcome, Wait):  # a wait, if there is one, charges no attempt
            self._failure = outcome

    def _refuse(self, batch: Batch, refused: guard.VendorRefused) -> None:
        """Halve what the vendor refuses until the text that it does not want stands alone."""
        if refused.status not in billed_calls.TEXT_ERROR_STATUSES:  # a wrong address or model: no document's fault
            log.error("Vendor %s refuses embeddings with status %d.", self._embedder.vendor.name, refused.status)
            self._failure = Wait(MISCONFIGURED_SECONDS, VENDOR_MISCONFIGURED)
        elif len(batch) > 1:
            half = len(batch) // 2
            self._waiting += [batch[half:], batch[:half]]
        else:
            self._refused += 1
            if self._refused >= HOPELESS and not self._kept:
                self._failure = refused
