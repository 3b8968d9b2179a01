"""pgmq's own client, on the connection that Django has open: what it does is part of the caller's transaction."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from django.db import connection
from pgmq.sync_operations import SyncPGMQueueOperationsMixin
from psycopg.types.json import Jsonb

QUEUE = "ingestion_queue"
TABLE, ARCHIVE = f"pgmq.q_{QUEUE}", f"pgmq.a_{QUEUE}"


class PgmqClient(SyncPGMQueueOperationsMixin):  # type: ignore[no-untyped-call]
    """The client without its pool: the mixin asks for nothing but ways to run a statement."""

    logger = logging.getLogger("accessa.integrations.pgmq")
    _json_parser = staticmethod(json.loads)  # Django has psycopg hand out jsonb as text

    def _encode_jsonb(self, value: dict[str, Any]) -> Jsonb:
        return Jsonb(value)

    def _encode_jsonb_list(self, values: list[dict[str, Any]]) -> list[Jsonb]:
        return [Jsonb(value) for value in values]

    def _execute(self, sql: str, params: Sequence[Any] | None = None, conn: None = None) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql, params)

    def _execute_with_result(self, sql: str, params: Sequence[Any] | None = None, conn: None = None) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(sql, params)
            return list(cursor.fetchall())

    def _execute_one(self, sql: str, params: Sequence[Any] | None = None, conn: None = None) -> Any:
        rows = self._execute_with_result(sql, params)
        return rows[0] if rows else None


PGMQ = PgmqClient()
