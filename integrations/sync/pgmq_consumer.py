"""Side queue of workers: reads one page message at a time, runs the page and settles the message (spec 002 §4)."""

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial

import structlog
from django.conf import settings
from django.utils.module_loading import import_string

from integrations.error_codes import CAPABILITY_MISSING, MAX_RETRIES_EXCEEDED, TOKEN_REFUSED
from integrations.models import IngestionJob
from integrations.oauth.token_refresh import SourceBroken
from integrations.providers.interface import CapabilityMissing, TokenRefused
from integrations.sync import lifecycle, pgmq
from integrations.sync.pgmq import TABLE, Message
from integrations.sync.visibility_lease import extended_visibility
from jobs import failpoints, infrastructure_errors, safe_errors, telemetry
from jobs.claims import ClaimLost
from jobs.cluster import shared_state
from jobs.error_codes import BUG, STOPPING
from jobs.outcomes import Permanent, Retryable, Wait
from jobs.worker_slots import WorkerSlots

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.integrations")

Ending = tuple[int, str]  # log level and outcome
SUPERSEDED: Ending = (logging.INFO, "SUPERSEDED")
DUE = f"SELECT 1 FROM {TABLE} WHERE vt <= clock_timestamp()"


def slot_count() -> int:
    """Return how many workers of a cluster run pages at once: INGESTION_WORKERS, or half of them."""
    most: int = settings.INGESTION_WORKERS or max(1, settings.WORKERS // 2)
    return min(most, int(settings.WORKERS))


SLOTS = WorkerSlots("ingestion", due=DUE, count=slot_count)
worker_slot, count_claimable = SLOTS.hold, SLOTS.count_claimable


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
