"""Messages of pgmq's ``ingestion_queue``: each is one page of a sync (spec 002 §4)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now
from psycopg.types.json import Jsonb

from integrations.models import IngestionJob
from integrations.sync.pgmq import PGMQ, QUEUE, TABLE
from jobs import services
from jobs.claims import ClaimLost

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.integrations")

MALFORMED = "MESSAGE_MALFORMED"

# The fence: the message, locked, if nobody has read it since. In its way are only short transactions on this one row.
_HELD = f"SELECT 1 FROM {TABLE} WHERE msg_id = %s AND read_ct = %s FOR NO KEY UPDATE"
_COUNT_HOLD = f"UPDATE {TABLE} SET headers = coalesce(headers, '{{}}') || %s WHERE msg_id = %s"
_PATIENCE = "SELECT set_config('lock_timeout', '1s', true)"


@dataclass(frozen=True, slots=True)
class Body:
    """What a message says: which page of which sync."""

    job_id: UUID
    source_id: UUID
    user_id: UUID
    kind: str
    stream: int = 0  # index into what the provider lists for this kind
    following: str | None = None  # where the page begins; None: the stream's first
    page: int = 0  # counted through all streams of the sync

    def next_page(self, following: str | None) -> Body:
        return replace(self, following=following, page=self.page + 1)

    def next_stream(self) -> Body:
        return replace(self, stream=self.stream + 1, following=None, page=self.page + 1)

    def to_json(self) -> dict[str, Any]:
        return {name: str(value) if isinstance(value, UUID) else value for name, value in asdict(self).items()}

    @classmethod
    def parse(cls, told: Any) -> Body:
        """Raise ``ValueError`` for what names no page of a sync. Fields that another release adds are passed over."""
        if not isinstance(told, dict):
            raise ValueError("not a page of a sync")
        job, source, user = (UUID(_checked(told.get(name), str)) for name in ("job_id", "source_id", "user_id"))
        stream, page = (_checked(told.get(name, 0), int) for name in ("stream", "page"))
        following = None if told.get("following") is None else _checked(told["following"], str)
        if told.get("kind") not in IngestionJob.Kind.values or min(stream, page) < 0:
            raise ValueError("no such page")
        return cls(job, source, user, told["kind"], stream, following, page)


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:  # True is no page
        raise ValueError(f"not of type {kind.__name__}")
    return value


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it was read. Whoever reads it later has a higher ``read_ct``, and the right to write for it."""

    msg_id: int
    read_ct: int
    held: int  # reads that did not count: a provider asked to wait, a worker had to stop
    enqueued_at: datetime
    body: Body

    @property
    def deliveries(self) -> int:
        return self.read_ct - self.held


def enqueue_page(body: Body, *, delay: int = 0) -> int:
    """Put a page into the queue, in the caller's transaction, and ring when that commits; return the message's id."""
    params: list[Any] = [QUEUE, Jsonb(body.to_json()), delay]
    with connection.cursor() as cursor:
        cursor.execute("SELECT ingestion_enqueue(%s, %s, %s)", params)
        msg_id: int = cursor.fetchone()[0]
    services.notify_workers()
    return msg_id


def read_message() -> Message | None:
    """Take the next visible message for INGESTION_VT_SECONDS, or None. Call it outside of transactions.

    What is no page of ours is archived on the way: left where it is, it would come back for ever.
    """
    while row := _read():
        msg_id, read_ct, enqueued_at, told, headers = row
        try:
            body = Body.parse(json.loads(told or "null"))
        except ValueError:
            _set_aside(msg_id, told)
            continue
        return Message(msg_id, read_ct, _held(json.loads(headers or "null")), enqueued_at, body)
    return None


def _set_aside(msg_id: int, told: str | None) -> None:
    """Archive what cannot be read, and end the sync that it names, if it does: it would wait for this page for ever."""
    job_id = _job_named(told)
    with transaction.atomic():
        if job_id is not None:
            active = IngestionJob.objects.filter(pk=job_id, status__in=["queued", "running"])
            active.update(status="failed", error_message=MALFORMED, finished_at=Now(), updated_at=Now())
        _told_id("ingestion_archive", msg_id)
    log.warning("A message is no page of a sync; it is archived.", message=msg_id)


def _job_named(told: str | None) -> UUID | None:
    try:
        found = json.loads(told or "null")
        return UUID(found["job_id"])
    except (ValueError, TypeError, LookupError, AttributeError):
        return None


def _read() -> Any:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT msg_id, read_ct, enqueued_at, message, headers FROM ingestion_read(%s, %s, 1)",
            [QUEUE, settings.INGESTION_VT_SECONDS],
        )
        return cursor.fetchone()


def _held(headers: Any) -> int:
    held = headers.get("held") if isinstance(headers, Mapping) else None
    return held if type(held) is int else 0


def delete_message(message: Message) -> bool:
    """Take a message out whose page is committed, whoever has read it since; tell whether it was there."""
    return _told_id("ingestion_delete", message.msg_id)


def archive_message(message: Message) -> bool:
    """Set a message aside for people. Call it inside ``fenced`` with what else ends the sync."""
    return _told_id("ingestion_archive", message.msg_id)


def _told_id(wrapper: str, msg_id: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {wrapper}(%s, %s)", [QUEUE, msg_id])
        return bool(cursor.fetchone()[0])


@contextmanager
def message_lease(message: Message) -> Iterator[None]:
    """Open a transaction in which nobody else can read the message; raise ``ClaimLost`` when somebody has."""
    with transaction.atomic():
        _lock(message)
        yield


def _lock(message: Message) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_HELD, [message.msg_id, message.read_ct])
        if cursor.fetchone() is None:
            raise ClaimLost(f"message {message.msg_id}")


def postpone_message(message: Message, seconds: float) -> None:
    """Hide a message for so long without using up a delivery: it is not the page's fault. May raise ``ClaimLost``."""
    counted: list[Any] = [Jsonb({"held": message.held + 1}), message.msg_id]
    with _patiently(message), connection.cursor() as cursor:
        cursor.execute(_COUNT_HOLD, counted)
        PGMQ.set_vt(QUEUE, message.msg_id, math.ceil(seconds))


def retry_message(message: Message, seconds: float | None = None) -> None:
    """Let a message reappear when its time is over, or in ``seconds``: a delivery is used up."""
    if seconds is not None:
        extend_visibility(message, seconds)


def extend_visibility(message: Message, seconds: float) -> None:
    """Keep a message hidden for so long from now; raise ``ClaimLost`` when somebody else has read it."""
    with _patiently(message):
        PGMQ.set_vt(QUEUE, message.msg_id, math.ceil(seconds))


@contextmanager
def _patiently(message: Message) -> Iterator[None]:
    """As ``fenced``, for the heart too: it must not wait long for a transaction of the work that it watches."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(_PATIENCE)
        _lock(message)
        yield


def has_messages() -> bool:
    """Tell whether any message is in the queue, visible or not."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT EXISTS (SELECT FROM {TABLE})")
        return bool(cursor.fetchone()[0])
