"""Feed of the search engine: a message for each document whose passages a transaction changes, kept until it is sent.

A message says only which document: its sender sends the passages as they are then, so that repeating one, or sending
two in either order, ends with what the rows hold.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from accounts.prepared_statements import prepared_cursor

KIND = "search"
# One target a tenant: its documents are sent one after another, and its messages are found by the outbox's index.
TARGET = f"md5({{user}}::text || ':{KIND}')::uuid"
INSERT = f"""
    INSERT INTO outbox (id, user_id, kind, target_id, payload)
    SELECT gen_random_uuid(), user_id, '{KIND}', {TARGET.format(user="user_id")},
           jsonb_build_object('type', 'passages.changed', 'document_id', document_id)
    FROM documents"""
ENQUEUE = f"{INSERT} WHERE document_id = ANY(%s)"
ENQUEUE_ALL = f"{INSERT} WHERE %(user)s::uuid IS NULL OR user_id = %(user)s"
PENDING = f"""
    SELECT (payload ->> 'document_id')::uuid FROM outbox
    WHERE target_id = {TARGET.format(user="%(user)s")} AND user_id = %(user)s LIMIT %(most)s"""

# By ix_outbox_due: what is sent is deleted.
BACKLOG = f"""
    SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8
    FROM outbox WHERE state = 'queued' AND kind = '{KIND}'"""


def is_enabled() -> bool:
    return bool(settings.SEARCH_ENGINE == "milvus")


def enqueue(document_ids: Iterable[UUID]) -> None:
    """Write that the passages of documents change. Call in the transaction that does it, before it deletes one."""
    if is_enabled():
        with connection.cursor() as cursor:
            cursor.execute(ENQUEUE, [list(document_ids)])


def enqueue_all(user_id: UUID | None) -> int:
    """Write that the passages of all documents change, of a tenant or of all; return how many documents these are."""
    with connection.cursor() as cursor:
        cursor.execute(ENQUEUE_ALL, {"user": user_id})
        return int(cursor.rowcount)


def pending_documents(user_id: UUID, *, most: int | None = None) -> list[UUID]:
    """Return the documents of up to ``most`` unsent messages of the tenant. May be called in ``as_tenant``."""
    params: dict[str, Any] = {"user": user_id, "most": most}
    with prepared_cursor() as cursor:
        cursor.execute(PENDING, params)
        return [document_id for (document_id,) in cursor.fetchall()]


def backlog() -> tuple[int, float]:
    """Return how many messages are not sent yet, and the age of the oldest in seconds."""
    with connection.cursor() as cursor:
        cursor.execute(BACKLOG)
        messages, seconds = cursor.fetchone()
    return int(messages), float(seconds)
