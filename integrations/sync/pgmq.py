"""pgmq queue ``ingestion_queue``: messages that are one page of a sync each, and their lease (spec 002 §4)."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Self
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now
from psycopg.types.json import Jsonb

from integrations.error_codes import MESSAGE_MALFORMED
from integrations.models import IngestionJob
from jobs import services
from jobs.claims import ClaimLost
from jobs.cluster import shared_state
from jobs.error_codes import STOPPING
from jobs.outcomes import Wait

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.integrations")

QUEUE = "ingestion_queue"
TABLE, ARCHIVE = f"pgmq.q_{QUEUE}", f"pgmq.a_{QUEUE}"

# The message lease: the message, locked, if nobody has read it since. Only short transactions lock this one row.
_LOCK = f"SELECT 1 FROM {TABLE} WHERE msg_id = %s AND read_ct = %s FOR NO KEY UPDATE"
_COUNT_HOLD = f"UPDATE {TABLE} SET headers = coalesce(headers, '{{}}') || %s WHERE msg_id = %s RETURNING 1"
_SET_TIMEOUT = "SELECT pgmq.set_vt(%s, %s, %s)"
_LOCK_TIMEOUT = "SELECT set_config('lock_timeout', '1s', true)"


@dataclass(frozen=True, slots=True)
class Body:
    """The content of a message: which page of which sync."""

    job_id: UUID
    source_id: UUID
    user_id: UUID
    kind: str
    stream: int = 0  # index into the provider's streams for this kind
    page_token: str | None = None  # where the page begins; None: the stream's first
    page: int = 0  # counted through all streams of the sync

    def next_page(self, page_token: str | None) -> Self:
        return replace(self, page_token=page_token, page=self.page + 1)

    def next_stream(self) -> Self:
        return replace(self, stream=self.stream + 1, page_token=None, page=self.page + 1)

    def to_json(self) -> dict[str, Any]:
        return {name: str(field) if isinstance(field, UUID) else field for name, field in asdict(self).items()}

    @classmethod
    def parse(cls, body: Any) -> Self:
        """Parse a message; raise ``ValueError`` unless it names a page of a sync. Ignores fields of other releases."""
        if not isinstance(body, dict):
            raise ValueError("not a page of a sync")
        job, source, user = (UUID(_typed(body.get(name), str)) for name in ("job_id", "source_id", "user_id"))
        stream, page = (_typed(body.get(name, 0), int) for name in ("stream", "page"))
        page_token = None if body.get("page_token") is None else _typed(body["page_token"], str)
        if body.get("kind") not in IngestionJob.Kind.values or min(stream, page) < 0:
            raise ValueError("no such page")
        return cls(job, source, user, body["kind"], stream, page_token, page)


def _typed(field: Any, kind: type) -> Any:
    if type(field) is not kind:  # True is no page
        raise ValueError(f"not of type {kind.__name__}")
    return field


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it was read. A later reader has a higher ``read_ct``, and takes over the message lease."""

    msg_id: int
    read_ct: int
    held: int  # reads that did not count: a provider asked to wait, a worker had to stop
    enqueued_at: datetime
    body: Body

    @property
    def deliveries(self) -> int:
        return self.read_ct - self.held


def enqueue_page(body: Body, *, delay: int = 0) -> int:
    """Enqueue a page in the caller's transaction, and notify workers when it commits; return the message's id."""
    (msg_id,) = _fetch_row("SELECT ingestion_enqueue(%s, %s, %s)", QUEUE, Jsonb(body.to_json()), delay) or ()
    services.notify_workers()
    return int(msg_id)


def read_message() -> Message | None:
    """Return the next visible message, hidden for INGESTION_VT_SECONDS, or None. Call it outside of transactions.

    Malformed messages are archived on the way: left in the queue, they would come back for ever.
    """
    sql = "SELECT msg_id, read_ct, enqueued_at, message, headers FROM ingestion_read(%s, %s, 1)"
    while row := _fetch_row(sql, QUEUE, settings.INGESTION_VT_SECONDS):
        msg_id, read_ct, enqueued_at, text, headers = row
        try:
            body = Body.parse(json.loads(text or "null"))
        except ValueError:
            _archive_malformed(msg_id, text)
            continue
        headers = json.loads(headers or "null")
        held = headers.get("held") if isinstance(headers, Mapping) else None
        return Message(msg_id, read_ct, held if type(held) is int else 0, enqueued_at, body)
    return None


def _archive_malformed(msg_id: int, text: str | None) -> None:
    """Archive a malformed message and fail the sync that it names, if any: it would wait for this page for ever."""
    try:
        job_id = UUID(json.loads(text or "null")["job_id"])
    except (ValueError, TypeError, LookupError, AttributeError):
        job_id = None
    with transaction.atomic():
        if job_id is not None:
            active = IngestionJob.objects.filter(pk=job_id, status__in=["queued", "running"])
            active.update(status="failed", error_message=MESSAGE_MALFORMED, finished_at=Now(), updated_at=Now())
        _fetch_row("SELECT ingestion_archive(%s, %s)", QUEUE, msg_id)
    log.warning("A message is no page of a sync; it is archived.", message=msg_id)


def delete_message(message: Message) -> bool:
    """Delete the message of a committed page, whoever has read it since; return whether it was there."""
    return _fetch_row("SELECT ingestion_delete(%s, %s)", QUEUE, message.msg_id) == (True,)


def archive_message(message: Message) -> bool:
    """Archive a message for staff. Call it inside ``message_lease``, with the updates that end the sync."""
    return _fetch_row("SELECT ingestion_archive(%s, %s)", QUEUE, message.msg_id) == (True,)


@contextmanager
def message_lease(message: Message, *, lock_timeout: bool = False) -> Iterator[None]:
    """Open a transaction in which nobody else can read the message; raise ``ClaimLost`` when somebody has.

    ``lock_timeout`` is for the heartbeat too, which must not wait long for the transaction of the work it watches.
    """
    with transaction.atomic():
        if lock_timeout:
            _fetch_row(_LOCK_TIMEOUT)
        if _fetch_row(_LOCK, message.msg_id, message.read_ct) is None:
            raise ClaimLost(f"message {message.msg_id}")
        yield


def postpone_message(message: Message, seconds: float) -> None:
    """Hide a message for ``seconds`` without using up a delivery; raise ``ClaimLost`` when somebody has read it."""
    with message_lease(message, lock_timeout=True):
        _fetch_row(_COUNT_HOLD, Jsonb({"held": message.held + 1}), message.msg_id)
        _fetch_row(_SET_TIMEOUT, QUEUE, message.msg_id, math.ceil(seconds))


def extend_visibility(message: Message, seconds: float) -> None:
    """Hide a message for ``seconds`` from now, a delivery used up; raise ``ClaimLost`` when somebody has read it."""
    with message_lease(message, lock_timeout=True):
        _fetch_row(_SET_TIMEOUT, QUEUE, message.msg_id, math.ceil(seconds))


def has_messages() -> bool:
    """Return whether any message is in the queue, visible or not."""
    return _fetch_row(f"SELECT EXISTS (SELECT FROM {TABLE})") == (True,)


def _fetch_row(sql: str, *params: Any) -> tuple[Any, ...] | None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        row: tuple[Any, ...] | None = cursor.fetchone()
    return row


def raise_if_stopping() -> None:
    """Raise ``Wait`` when this worker has to stop: its message returns to the queue, no delivery is used up."""
    if shared_state.is_stopping():
        raise Wait(0.0, STOPPING)
