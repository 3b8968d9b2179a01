"""Side queue of workers: reads one page message at a time, runs the page and settles the message (spec 002 §4)."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import structlog
from django.conf import settings
from django.db import connection
from django.utils.module_loading import import_string

from integrations.error_codes import CAPABILITY_MISSING, MAX_RETRIES_EXCEEDED, TOKEN_REFUSED
from integrations.models import IngestionJob
from integrations.oauth.token_refresh import SourceBroken
from integrations.providers import CapabilityMissing, TokenRefused
from integrations.sync import lifecycle, pgmq
from integrations.sync.pgmq import TABLE, Message
from jobs import failpoints, infrastructure_errors, safe_errors, telemetry
from jobs.claims import ClaimLost
from jobs.cluster import shared_state
from jobs.cluster.lease_heartbeat import HEARTBEAT
from jobs.error_codes import BUG, STOPPING
from jobs.outcomes import Permanent, Retryable, Wait

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.integrations")

Ending = tuple[int, str]  # log level and outcome
SUPERSEDED: Ending = (logging.INFO, "SUPERSEDED")

# --- worker slots: so many workers of a cluster run pages at once, the others stay free for the jobs -----------------
DUE = f"SELECT 1 FROM {TABLE} WHERE vt <= clock_timestamp()"
# A slot is a session's advisory lock: released with the connection, however its process ends. Taken for due pages only.
_TAKE_SLOT = f"""
    SELECT slot FROM generate_series(0, %(slots)s - 1) slot
    WHERE CASE WHEN EXISTS ({DUE}) THEN pg_try_advisory_lock(hashtext(%(name)s), slot) END
    LIMIT 1"""
_RELEASE_SLOT = "SELECT pg_advisory_unlock(hashtext(%(name)s), %(slot)s)"
_TAKEN_SLOTS = """
    SELECT count(*) FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 2 AND classid = hashtext(%(name)s)::oid AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
_CLAIMABLE = f"""
    WITH due AS (SELECT count(*) AS pages FROM ({DUE} LIMIT %(most)s) visible)
    SELECT CASE WHEN pages = 0 THEN 0 ELSE least(pages, %(slots)s - ({_TAKEN_SLOTS})) END FROM due"""


def slot_count() -> int:
    most: int = settings.INGESTION_WORKERS or max(1, settings.WORKERS // 2)
    return min(most, int(settings.WORKERS))


def _slot_params() -> dict[str, Any]:
    return {"name": f"ingestion:{shared_state.cluster_name()}", "slots": slot_count()}


@contextmanager
def worker_slot() -> Iterator[bool]:
    """Hold a slot for the block; yield whether there was one, and a page to use it for."""
    params = _slot_params()
    with connection.cursor() as cursor:
        cursor.execute(_TAKE_SLOT, params)
        row = cursor.fetchone()
    if row is None:
        yield False
        return
    try:
        yield True
    finally:
        # Where the connection was lost meanwhile, the slot went with it.
        with connection.cursor() as cursor:
            cursor.execute(_RELEASE_SLOT, params | {"slot": row[0]})


def count_claimable(cursor: Any, *, most: int) -> int:
    """Return how many workers of this cluster would find both a page and a slot."""
    cursor.execute(_CLAIMABLE, _slot_params() | {"most": most})
    return max(0, int(cursor.fetchone()[0]))


def is_idle() -> bool:
    return not pgmq.has_messages()


def drain(until: float) -> int:
    """Run pages until none is due or it is ``until``; return how many. Each takes a slot anew."""
    count = 0
    while not shared_state.is_stopping() and time.monotonic() <= until:
        shared_state.record_claim_attempt()
        with worker_slot() as is_due:
            message = pgmq.read_message() if is_due else None
            if message is None:
                break
            consume(message)
            count += 1
    return count


def consume(message: Message) -> None:
    """Run one page, settle its message, and log and trace the outcome. Log fields are ids and our own codes only."""
    body = message.body
    job = IngestionJob.objects.select_related("source").filter(pk=body.job_id).first()
    ids = {"ingestion": body.job_id, "source": body.source_id, "user": body.user_id}
    fields = {name: str(id) for name, id in ids.items()} | {"kind": body.kind, "page": str(body.page)}
    if job:
        fields |= {"correlation": str(job.correlation_id), "provider": job.source.provider}
    began = time.monotonic()
    with telemetry.isolated_log_context(**fields), telemetry.span("page", **fields) as note:
        level, outcome = _run_and_settle(message, job, fields)
        note(outcome=outcome)
        duration = round((time.monotonic() - began) * 1000, 1)
        log.log(level, "Page ended.", outcome=outcome, duration_ms=duration, delivery=message.deliveries)


def _run_and_settle(message: Message, job: IngestionJob | None, log_fields: Mapping[str, str]) -> Ending:
    if job is None or job.status not in lifecycle.ACTIVE or job.page > message.body.page:
        return _delete(message, "NOTHING_TO_DO")  # its source is gone, or its sync has ended or is past this page
    settle: Callable[[], Ending]
    if message.deliveries >= settings.INGESTION_MAX_DELIVERIES:
        settle = partial(_fail, message, MAX_RETRIES_EXCEEDED)
    else:
        with extended_visibility(message, log_fields):
            settle = _run(message)
    try:
        return settle()
    except ClaimLost:
        return SUPERSEDED


def _run(message: Message) -> Callable[[], Ending]:
    """Run the page; return the call that settles its message. An unavailable database is raised."""
    try:
        failpoints.failpoint("page:begin")
        import_string(settings.INGESTION_WORK)(message)
        failpoints.failpoint("page:committed")
        return partial(_delete, message, "DONE")
    except ClaimLost:
        return lambda: SUPERSEDED
    except Wait as wait:
        return partial(_postpone, message, wait.seconds, wait.reason)
    except TokenRefused:
        return partial(_retry, message, 0.0, TOKEN_REFUSED)
    except Retryable as failure:
        return partial(_retry, message, failure.retry_after, failure.code)
    except (Permanent, SourceBroken) as failure:
        return partial(_fail, message, failure.code)
    except CapabilityMissing as missing:
        log.warning("The provider's server lacks a tool or an argument.", capability=missing.capability)
        return partial(_fail, message, CAPABILITY_MISSING)
    except Exception as error:  # a bug: uses up a delivery, and is never shown with its values
        if infrastructure_errors.is_database_unavailable(error):
            raise
        if infrastructure := infrastructure_errors.infrastructure_wait(error):
            return partial(_postpone, message, infrastructure.seconds, infrastructure.reason)
        log.error("A page failed.", exception=safe_errors.safe_traceback(error), reported=True)
        telemetry.report_error(error)
        return partial(_retry, message, 0.0, BUG)


def _delete(message: Message, outcome: str) -> Ending:
    pgmq.delete_message(message)
    return logging.INFO, outcome


def _postpone(message: Message, seconds: float, reason: str) -> Ending:
    pgmq.postpone_message(message, seconds)
    if reason != STOPPING:
        lifecycle.note_error(message.body.job_id, f"page:{message.body.page}", reason)
    return logging.INFO, reason


def _retry(message: Message, at_least: float, code: str) -> Ending:
    """Let the visibility timeout end by itself, or later where the provider asks for it (no backoff: spec 002 §4)."""
    if at_least > settings.INGESTION_VT_SECONDS:
        pgmq.extend_visibility(message, at_least)
    lifecycle.note_error(message.body.job_id, f"page:{message.body.page}", code)
    return logging.WARNING, code


def _fail(message: Message, code: str) -> Ending:
    with pgmq.message_lease(message):
        lifecycle.fail_sync(message.body.job_id, code)
        pgmq.archive_message(message)
    return logging.WARNING, code


# --- visibility timeout: extended by the heartbeat while a page is run -----------------------------------------------
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
    """A page as a ``Renewable`` of ``jobs.cluster.lease_heartbeat``, by the visibility timeout of its message."""

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
