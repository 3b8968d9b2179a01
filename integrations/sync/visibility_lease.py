"""Visibility timeout of a page's message, extended by the heartbeat while the page runs."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from django.conf import settings

from integrations.sync import pgmq
from integrations.sync.pgmq import Message
from jobs import telemetry
from jobs.claims import ClaimLost
from jobs.cluster import shared_state
from jobs.cluster.heartbeat import HEARTBEAT


@contextmanager
def extended_visibility(message: Message, log_fields: Mapping[str, str]) -> Iterator[None]:
    """Hide the message until the end of the block; kill the process if that takes longer than a page may."""
    lease = VisibilityLease(message, log_fields)
    HEARTBEAT.watch(lease)
    try:
        yield
    finally:
        HEARTBEAT.clear()
        lease.end()


class VisibilityLease:
    """A page as a ``Renewable`` of ``jobs.cluster.heartbeat``, by the visibility timeout of its message."""

    def __init__(self, message: Message, log_fields: Mapping[str, str]) -> None:
        self._message, self._log_fields = message, log_fields
        self._third = settings.INGESTION_VT_SECONDS / 3
        self._extended = time.monotonic()
        self._ended = False
        self._lock = threading.Lock()
        self.time_limit = float(settings.INGESTION_PAGE_SECONDS)
        self.renew_seconds = min(1.0, self._third)

    def __str__(self) -> str:
        return f"page {self._message.body.page} of {self._message.body.job_id} does not end"

    def renew(self) -> None:
        shared_state.record_claim_attempt()  # the watchdog sees no other sign of life while a page runs
        with self._lock:
            if self._ended or time.monotonic() - self._extended < self._third:
                return
            try:
                pgmq.extend_visibility(self._message, settings.INGESTION_VT_SECONDS)
            except ClaimLost:
                self._ended = True  # another worker has it; the message lease refuses writes of this one
                raise
            self._extended = time.monotonic()

    def end(self) -> None:
        """Extend no more, even if an extension is about to begin: settling the message sets its visibility."""
        with self._lock:
            self._ended = True

    def release(self, *, timed_out: bool) -> None:
        """Show the message at once: it costs a delivery when the page hung, and none when the worker has to stop."""
        if timed_out:
            pgmq.extend_visibility(self._message, 0)
        else:
            pgmq.postpone_message(self._message, 0)

    def log_context(self) -> AbstractContextManager[object]:
        return telemetry.isolated_log_context(**self._log_fields)
