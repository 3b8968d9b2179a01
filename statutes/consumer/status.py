"""What a consumer says of itself: its state, in the log and in ``sqs_consumers`` (spec 004 §1)."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import structlog
from django.db import connection
from django.db.utils import DatabaseError, InterfaceError

from jobs.cluster import shared_memory as cluster
from jobs.errors import safe_error_name
from jobs.states import Stage
from statutes.models import Consumer

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
State = Consumer.State

EVERY_SECONDS = 5.0
# The spec's words for where the work on a message is, by the stage at which its job stands.
SUB_STATES = {
    Stage.QUEUED: "downloading",
    Stage.JOB_VALIDATED: "normalizing",
    Stage.PARSING: "normalizing",
    Stage.PARSED: "normalizing",
    Stage.PARSE_VALIDATED: "chunking",
    Stage.CHUNKING: "chunking",
    Stage.CHUNKS_BUFFERED: "chunking",
    Stage.CHUNKED: "embedding",
    Stage.EMBEDDING: "embedding",
    Stage.EMBEDDINGS_BUFFERED: "embedding",
    Stage.EMBEDDED: "uploading",
}
FINALIZE = "finalize"

# A consumer may come back under the name of one before it: in a container every main process has the same number.
SAY = """
WITH old AS (
    SELECT name FROM sqs_consumers WHERE seen_at < clock_timestamp() - interval '1 hour' AND name <> %(name)s
    FOR UPDATE SKIP LOCKED
), swept AS (DELETE FROM sqs_consumers USING old WHERE sqs_consumers.name = old.name)
INSERT INTO sqs_consumers AS c (name, state, job_id, received, ended, failed, started_at, changed_at, seen_at)
VALUES (%(name)s, %(state)s, %(job)s, %(received)s, %(ended)s, %(failed)s,
        clock_timestamp(), clock_timestamp(), clock_timestamp())
ON CONFLICT (name) DO UPDATE SET
    state = excluded.state, job_id = excluded.job_id, seen_at = excluded.seen_at,
    received = excluded.received, ended = excluded.ended, failed = excluded.failed,
    changed_at = CASE WHEN c.state = excluded.state THEN c.changed_at ELSE excluded.changed_at END,
    started_at = CASE WHEN %(first)s THEN excluded.started_at ELSE c.started_at END
"""


class Status:
    """Where a consumer is. Its counts are of messages, each time that they are handed out.

    ``received``: all. ``ended``: nothing is left of what they ask for, and they are deleted. ``failed``: refused, or
    something of what they ask for has failed. What is left for later, since another works on it, is neither.
    """

    def __init__(self) -> None:
        self.state = State.BOOT
        self.sub_state = ""
        self.job_id: UUID | None = None
        self.received = self.ended = self.failed = 0
        self._said = float("-inf")
        self._first = True

    def turn(self, state: Consumer.State, *, job_id: UUID | None = None, stage: str = "", code: str = "") -> None:
        """Go to ``state``; of what is the same as before nothing is said but, every few seconds, that it still is."""
        sub_state = SUB_STATES.get(Stage(stage), "") if stage in Stage.values else stage
        now = (state, sub_state, job_id)
        if now != (self.state, self.sub_state, self.job_id) or self._first:
            self.state, self.sub_state, self.job_id = now
            self._said = float("-inf")
            about: dict[str, Any] = {"code": code} if code else {}
            about |= {"sub_state": sub_state, "job": str(job_id)} if job_id else {}
            say = log.warning if state == State.WAIT and code else log.info
            say("Consumer's state.", state=state.value, **about)
        if time.monotonic() - self._said >= EVERY_SECONDS:
            self.say()

    def say(self) -> None:
        """Write the row; a database that is away does not keep a consumer from its state."""
        self._said = time.monotonic()
        values = {
            "name": cluster.cluster_name(),
            "state": self.state.value,
            "job": self.job_id,
            "received": self.received,
            "ended": self.ended,
            "failed": self.failed,
            "first": self._first,
        }
        try:
            with connection.cursor() as cursor:
                cursor.execute(SAY, values)
            self._first = False
        except (DatabaseError, InterfaceError) as error:
            log.warning("A consumer cannot say where it is.", error=safe_error_name(error))
            connection.close()
