"""Side queue of workers: claims messages of the outbox, sends them in threads, retries for three days."""

import random
import time
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any, cast
from uuid import uuid4

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils import timezone

from jobs import failpoints, safe_errors, telemetry
from jobs.cluster import shared_state
from jobs.cluster.heartbeat import HEARTBEAT
from jobs.error_codes import BUG
from jobs.worker_slots import WorkerSlots
from outbox import search_feed
from outbox.attempts import Attempt, Sender
from outbox.models import Message

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.outbox")

# What Standard Webhooks advises, three days in all; up to a fifth is added, so that what failed together is not retried
# together.
WAIT_SECONDS = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
JITTER = 0.2
CLAIM_SECONDS = 90.0  # then a claim is void: its worker is gone
SEND_SECONDS = 60.0  # of a message: a resolver may take its time before the 15 s of a request begin
AT_ONCE = 16  # sent by a worker, each to another target
AT_ONCE_OF_TENANT = 2  # slow receivers of one tenant leave the others their threads
POLL_SECONDS = 1.0  # while messages are being sent: others may become due
KEPT_ATTEMPTS = 20

# The targets that have a due message and are not paused, by a skip scan through ix_outbox_due: a target with a million
# messages costs no more than one with a single message. The search engine's feed pauses a target by its message that
# failed last: the next one to become due that is not claimed.
_READY = f"""
    WITH RECURSIVE hops AS (
        (SELECT target_id FROM outbox WHERE state = 'queued' ORDER BY target_id LIMIT 1)
        UNION ALL
        SELECT (SELECT o.target_id FROM outbox o WHERE o.state = 'queued' AND o.target_id > h.target_id
                ORDER BY o.target_id LIMIT 1)
        FROM hops h WHERE h.target_id IS NOT NULL
    ), ready AS (
        SELECT h.target_id, coalesce(e.user_id, h.target_id) AS tenant
        FROM hops h LEFT JOIN webhook_endpoints e ON e.id = h.target_id
        WHERE h.target_id IS NOT NULL AND (e.paused_until IS NULL OR e.paused_until <= statement_timestamp())
          AND EXISTS (SELECT 1 FROM outbox o WHERE o.state = 'queued' AND o.target_id = h.target_id
                      AND o.due_at <= statement_timestamp())
          AND (SELECT o.kind = '{search_feed.KIND}' AND o.claim_token IS NULL FROM outbox o
               WHERE o.state = 'queued' AND o.target_id = h.target_id AND o.due_at > statement_timestamp()
               ORDER BY o.due_at LIMIT 1) IS NOT TRUE
    )"""
DUE = f"{_READY} SELECT 1 FROM ready"
# In random order: no target waits for the backlog of others.
CLAIM = f"""{_READY}, places AS (
        SELECT target_id, row_number() OVER (PARTITION BY tenant ORDER BY random())
            + (SELECT count(*) FROM unnest(%(tenants)s::uuid[]) held WHERE held = tenant) AS place
        FROM ready WHERE target_id <> ALL(%(targets)s::uuid[])
    ), chosen AS MATERIALIZED (
        SELECT target_id FROM places WHERE place <= %(most_of_tenant)s ORDER BY random() LIMIT %(most)s
    ),
    picked AS MATERIALIZED (
        SELECT m.id FROM chosen c CROSS JOIN LATERAL (
            SELECT o.id FROM outbox o
            WHERE o.state = 'queued' AND o.target_id = c.target_id AND o.due_at <= statement_timestamp()
            ORDER BY o.due_at LIMIT 1 FOR UPDATE SKIP LOCKED) m
    )
    UPDATE outbox u SET claim_token = %(token)s, attempts = u.attempts + 1, due_at = clock_timestamp() + %(lease)s
    FROM picked p WHERE u.id = p.id RETURNING u.*"""

SLOTS = WorkerSlots("outbox", due=DUE, count=lambda: 1)  # slow receivers hold one worker of a cluster at most
count_claimable = SLOTS.count_claimable


def is_idle() -> bool:
    """Tell whether nothing is due or being sent; what waits for a later attempt does not count."""
    queued = Message.objects.filter(state=Message.State.QUEUED)
    return not queued.filter(Q(due_at__lte=Now()) | Q(claim_token__isnull=False)).exists()


def drain(until: float) -> int:
    """Send messages until none is due or it is ``until``; return how many."""
    with SLOTS.hold() as is_due:
        return send_due(until) if is_due else 0


def send_due(until: float) -> int:
    """Send messages side by side. A thread that is free takes the next one, while slow receivers hold theirs."""
    count, sent = 0, dict[Future[tuple[Attempt, int]], Message]()
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="outbox") as pool:
        try:
            while True:
                may_claim = not shared_state.is_stopping() and time.monotonic() <= until and len(sent) < AT_ONCE
                for message in claim_due(sent.values()) if may_claim else ():
                    sent[pool.submit(_timed(_prepare(message)))] = message
                    count += 1
                if not sent:
                    return count
                _watch(sent.values())
                for future in wait(sent, POLL_SECONDS, FIRST_COMPLETED).done:
                    attempt, milliseconds = future.result()
                    failpoints.failpoint("outbox:sent")
                    settle(sent[future], attempt, milliseconds)
                    del sent[future]
        finally:
            HEARTBEAT.clear()


def claim_due(held: Collection[Message] = ()) -> list[Message]:
    """Claim the next due message of some targets but those of ``held``. The attempt counts now: a crash costs it."""
    shared_state.record_claim_attempt()
    params = {
        "token": uuid4(),
        "most": AT_ONCE - len(held),
        "most_of_tenant": AT_ONCE_OF_TENANT,
        "targets": [message.target_id for message in held],
        "tenants": [message.user_id for message in held],
        "lease": timedelta(seconds=CLAIM_SECONDS),
    }
    claimed = list(Message.objects.raw(CLAIM, params))
    if claimed:
        failpoints.failpoint("outbox:claimed")
    return claimed


def sender(kind: str) -> Sender:
    return cast(Sender, import_module(settings.OUTBOX_SENDERS[kind]))


def _prepare(message: Message) -> Callable[[], Attempt]:
    try:
        return sender(message.kind).prepare(message)
    except Exception as error:
        return partial(_bug, error)


def _timed(send: Callable[[], Attempt]) -> Callable[[], tuple[Attempt, int]]:
    def attempt() -> tuple[Attempt, int]:
        began = time.monotonic()
        try:
            outcome = send()
        except Exception as error:
            outcome = _bug(error)
        return outcome, round((time.monotonic() - began) * 1000)

    return attempt


def _bug(error: Exception) -> Attempt:
    log.error("Sending a message failed.", exception=safe_errors.safe_traceback(error), reported=True)
    telemetry.report_error(error)
    return Attempt(BUG)


def settle(message: Message, attempt: Attempt, milliseconds: int) -> None:
    """Move queued -> delivered, failed or, for a later attempt, queued. Writes nothing when the claim is lost."""
    entry = {
        "attempt": message.attempts,
        "at": timezone.now().isoformat(timespec="seconds"),
        "status": attempt.status,
        "code": attempt.code,
        "ms": milliseconds,
    }
    columns: dict[str, Any] = {"claim_token": None, "last_error": attempt.code}
    columns["log"] = [*message.log, entry][-KEPT_ATTEMPTS:]
    if attempt.code is None:
        columns |= {"state": Message.State.DELIVERED, "finished_at": Now()}
    elif attempt.is_final or message.attempts > len(WAIT_SECONDS):
        columns |= {"state": Message.State.FAILED, "finished_at": Now()}
    else:
        wait_seconds = max(retry_seconds(message.attempts), attempt.retry_after)
        columns["due_at"] = Now() + timedelta(seconds=wait_seconds)
    held = Message.objects.filter(pk=message.pk, claim_token=message.claim_token)
    with transaction.atomic():
        if not held.update(**columns):
            return
        sender(message.kind).record(message, attempt)
    fields = {"message": str(message.pk), "user": str(message.user_id), "target": str(message.target_id)}
    log.info("Message sent.", outcome=attempt.code or "DELIVERED", kind=message.kind, **entry | fields)


def retry_seconds(attempts: int) -> float:
    """Return the wait after the ``attempts``-th attempt."""
    return WAIT_SECONDS[attempts - 1] * random.uniform(1, 1 + JITTER)  # noqa: S311


def _watch(messages: Collection[Message]) -> None:
    HEARTBEAT.watch(Lease(list(messages)))


class Lease:
    """Messages that are being sent, as a ``Renewable`` of ``jobs.cluster.heartbeat``. A claim outlasts its limit."""

    renew_seconds = 1.0

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        first = min(message.due_at for message in messages)  # the end of the oldest claim
        left = (first - timezone.now()).total_seconds() - (CLAIM_SECONDS - SEND_SECONDS)
        self.time_limit = min(SEND_SECONDS, max(0.0, left))

    def __str__(self) -> str:
        return "a message of the outbox is not sent in time"

    def renew(self) -> None:
        shared_state.record_claim_attempt()  # the watchdog sees no other sign of life while receivers are slow

    def release(self, *, timed_out: bool) -> None:
        """Make the messages due at once; they may have been received, and are sent again."""
        of_these = Q()
        for message in self._messages:
            of_these |= Q(pk=message.pk, claim_token=message.claim_token)
        held = Message.objects.filter(of_these, state=Message.State.QUEUED)
        held.update(due_at=Now(), claim_token=None, attempts=F("attempts") - (0 if timed_out else 1))

    def log_context(self) -> AbstractContextManager[object]:
        return telemetry.isolated_log_context(queue="outbox")
