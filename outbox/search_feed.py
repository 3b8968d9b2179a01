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
ENQUEUE = f"""
    INSERT INTO outbox (id, user_id, kind, target_id, payload)
    SELECT gen_random_uuid(), user_id, '{KIND}', {TARGET.format(user="user_id")},
           jsonb_build_object('type', 'passages.changed', 'document_id', document_id)
    FROM documents WHERE document_id = ANY(%s)"""
PENDING = f"""
    SELECT DISTINCT (payload ->> 'document_id')::uuid FROM outbox
    WHERE target_id = {TARGET.format(user="%(user)s")} AND user_id = %(user)s LIMIT %(most)s"""


def is_enabled() -> bool:
    return bool(settings.SEARCH_ENGINE == "milvus")


def enqueue(document_ids: Iterable[UUID]) -> None:
    """Write that the passages of documents change. Call in the transaction that does it, before it deletes one."""
    if is_enabled():
        with connection.cursor() as cursor:
            cursor.execute(ENQUEUE, [list(document_ids)])


def pending_documents(user_id: UUID, *, most: int) -> list[UUID]:
    """Return up to ``most`` documents of the tenant that are not sent as they are. May be called in ``as_tenant``."""
    params: dict[str, Any] = {"user": user_id, "most": most}
    with prepared_cursor() as cursor:
        cursor.execute(PENDING, params)
        return [document_id for (document_id,) in cursor.fetchall()]
