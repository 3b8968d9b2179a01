"""A page that is being worked on stays invisible, for as long as it may take and its worker lives."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from django.conf import settings

from integrations.sync import pgmq
from integrations.sync.pgmq import Message
from jobs import log_context
from jobs.claims import ClaimLost
from jobs.cluster import shared_memory
from jobs.cluster.heartbeat import HEARTBEAT


@contextmanager
def extended_visibility(message: Message, said: Mapping[str, str]) -> Iterator[None]:
    """Hide the message until the end of the block; end the process if that takes longer than a page may."""
    page = VisibilityLease(message, said)
    HEARTBEAT.watch(page)
    try:
        yield
    finally:
        HEARTBEAT.clear()
        page.end()


class VisibilityLease:
    """A page as ``jobs.cluster.heartbeat`` keeps it: by the visibility of its message."""

    def __init__(self, message: Message, said: Mapping[str, str]) -> None:
        self._message, self._said = message, said
        self._third = settings.INGESTION_VT_SECONDS / 3
        self._extended = time.monotonic()
        self._ended = False
        self._changed = threading.Lock()
        self.time_limit = float(settings.INGESTION_PAGE_SECONDS)
        self.renew_seconds = min(1.0, self._third)

    def __str__(self) -> str:
        return f"page {self._message.body.page} of {self._message.body.job_id} does not end"

    def renew(self) -> None:
        shared_memory.record_claim_attempt()  # the watchdog knows no other sign of a worker that is at a page
        with self._changed:
            if self._ended or time.monotonic() - self._extended < self._third:
                return
            try:
                pgmq.extend_visibility(self._message, settings.INGESTION_VT_SECONDS)
            except ClaimLost:
                self._ended = True  # whoever has it now keeps it; the fence refuses what is written here
                raise
            self._extended = time.monotonic()

    def end(self) -> None:
        """Extend no more, not even on the way: what becomes of the message now sets its visibility."""
        with self._changed:
            self._ended = True

    def release(self, *, timed_out: bool) -> None:
        """Show the message at once: it cost a delivery when the page hung, and none when the worker had to stop."""
        if timed_out:
            pgmq.retry_message(self._message, 0)
        else:
            pgmq.postpone_message(self._message, 0)

    def log_context(self) -> AbstractContextManager[object]:
        return log_context.isolated_log_context(**self._said)
