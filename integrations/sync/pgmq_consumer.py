"""What a worker does with connectors' pages: one message at a time, and what becomes of it (spec 002 §4)."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Any

import structlog
from django.conf import settings
from django.utils.module_loading import import_string

from integrations.error_codes import CAPABILITY_MISSING, MAX_RETRIES_EXCEEDED, TOKEN_REFUSED
from integrations.models import IngestionJob
from integrations.oauth.token_refresh import SourceBroken
from integrations.providers import CapabilityMissing, TokenRefused
from integrations.sync import pgmq, sync_jobs, visibility_timeout, worker_slots
from integrations.sync.pgmq import STOPPING, Message
from jobs import errors, failpoints, log_context, tracing
from jobs.claims import ClaimLost
from jobs.cluster import shared_memory
from jobs.error_codes import BUG
from jobs.outcomes import Permanent, Retryable, Wait

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.integrations")
EXHAUSTED = MAX_RETRIES_EXCEEDED  # spec 002 §4

Ending = tuple[int, str]  # how loud to be about it, and its code


def count_claimable(cursor: Any, *, most: int) -> int:
    """Return how many workers of this cluster would find a page they may work on."""
    return worker_slots.claimable_pages(cursor, most_wanted=most)


def is_idle() -> bool:
    """Tell whether no page is left, due now or later."""
    return not pgmq.has_messages()


def drain(until: float) -> int:
    """Work through pages until none is due or it is ``until``; return how many. A slot is taken for each anew."""
    worked = 0
    while not shared_memory.is_stopping() and time.monotonic() <= until:
        shared_memory.record_claim_attempt()
        with worker_slots.worker_slot() as due:
            message = pgmq.read_message() if due else None
            if message is None:
                break
            _carry(message)
            worked += 1
    return worked


def _carry(message: Message) -> None:
    """Work on one page, and say how it went in log and trace."""
    job = IngestionJob.objects.select_related("source").filter(pk=message.body.job_id).first()
    said, began = _said(message, job), time.monotonic()
    with log_context.isolated_log_context(**said), tracing.span("page", **said) as note:
        level, outcome = _ended(message, job, said)
        note(outcome=outcome)
        duration = round((time.monotonic() - began) * 1000, 1)
        log.log(level, "Page ended.", outcome=outcome, duration_ms=duration, delivery=message.deliveries)


def _said(message: Message, job: IngestionJob | None) -> dict[str, str]:
    """Return what every line about a page says. Ids and words of ours only."""
    body = message.body
    ids = {"ingestion": body.job_id, "source": body.source_id, "user": body.user_id}
    said = {name: str(value) for name, value in ids.items()} | {"kind": body.kind, "page": str(body.page)}
    return said | ({"correlation": str(job.correlation_id), "provider": job.source.provider} if job else {})


def _ended(message: Message, job: IngestionJob | None, said: dict[str, str]) -> Ending:
    if job is None or job.status not in sync_jobs.ACTIVE or job.page > message.body.page:
        pgmq.delete_message(message)  # its source is gone, or its sync has ended or has gone on from this page
        return logging.INFO, "NOTHING_TO_DO"
    if message.deliveries >= settings.INGESTION_MAX_DELIVERIES:
        settle = partial(_fail, message, EXHAUSTED)
    else:
        with visibility_timeout.extended_visibility(message, said):
            settle = _worked(message)
    try:
        return settle()
    except ClaimLost:
        return _superseded()


def _worked(message: Message) -> partial[Ending]:
    """Work on the page; return what is to be done about its message. A database that is away is raised."""
    try:
        failpoints.failpoint("page:begin")
        import_string(settings.INGESTION_WORK)(message)
        failpoints.failpoint("page:committed")
        return partial(_delete, message)
    except ClaimLost:
        return partial(_superseded)
    except Wait as postponed:
        return partial(_hold, message, postponed.seconds, postponed.reason)
    except TokenRefused:
        return partial(_leave, message, 0.0, TOKEN_REFUSED)
    except Retryable as failure:
        return partial(_leave, message, failure.retry_after, failure.code)
    except (Permanent, SourceBroken) as failure:
        return partial(_fail, message, failure.code)
    except CapabilityMissing as missing:
        log.warning("The provider's server lacks what is needed.", capability=missing.capability)
        return partial(_fail, message, CAPABILITY_MISSING)
    except Exception as error:  # a bug: a delivery is used up, and it is never shown with its values
        if errors.is_database_unavailable(error):
            raise
        if wait := errors.infrastructure_wait(error):
            return partial(_hold, message, wait.seconds, wait.reason)
        log.error("A page failed.", exception=errors.safe_traceback(error), reported=True)
        tracing.report_error(error)
        return partial(_leave, message, 0.0, BUG)


def _superseded() -> Ending:
    return logging.INFO, "SUPERSEDED"


def _delete(message: Message) -> Ending:
    pgmq.delete_message(message)
    return logging.INFO, "DONE"


def _hold(message: Message, seconds: float, reason: str) -> Ending:
    pgmq.postpone_message(message, seconds)
    if reason != STOPPING:
        sync_jobs.note_page_error(message.body, reason)
    return logging.INFO, reason


def _leave(message: Message, at_least: float, code: str) -> Ending:
    """Let the visibility end by itself, or later where the provider has said so (no backoff: spec 002 §4)."""
    pgmq.retry_message(message, at_least if at_least > settings.INGESTION_VT_SECONDS else None)
    sync_jobs.note_page_error(message.body, code)
    return logging.WARNING, code


def _fail(message: Message, code: str) -> Ending:
    with pgmq.message_lease(message):
        sync_jobs.fail_sync(message.body.job_id, code)
        pgmq.archive_message(message)
    return logging.WARNING, code
