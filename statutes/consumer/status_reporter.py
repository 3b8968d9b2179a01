"""Status of a consumer: its state and counts, in the log and in ``sqs_consumers`` (spec 004 §1)."""

import time
from typing import Any
from uuid import UUID

import structlog
from django.db import connection
from django.db.utils import DatabaseError, InterfaceError

from jobs.choices import Stage
from jobs.cluster import shared_state
from jobs.safe_errors import safe_error_name
from statutes.models import Consumer

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
State = Consumer.State

WRITE_SECONDS = 5.0
# The spec's names for the progress of a message, by the stage of its job.
SUB_STATES = {
    Stage.QUEUED: "downloading",
    **dict.fromkeys((Stage.JOB_VALIDATED, Stage.PARSING, Stage.PARSED), "normalizing"),
    **dict.fromkeys((Stage.PARSE_VALIDATED, Stage.CHUNKING, Stage.CHUNKS_BUFFERED), "chunking"),
    **dict.fromkeys((Stage.CHUNKED, Stage.EMBEDDING, Stage.EMBEDDINGS_BUFFERED), "embedding"),
    Stage.EMBEDDED: "uploading",
}
FINALIZE = "finalize"
# A consumer may reuse the name of an earlier one: in a container every main process has the same pid.
UPSERT_CONSUMER = """
WITH old AS (
    SELECT name FROM sqs_consumers WHERE seen_at < clock_timestamp() - interval '1 hour' AND name <> %(name)s
    FOR UPDATE SKIP LOCKED
), deleted AS (DELETE FROM sqs_consumers USING old WHERE sqs_consumers.name = old.name)
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
    """The state of one consumer. Its counts are of messages, each time that they are received.

    ``received``: all. ``ended``: everything in them is done, and they are deleted. ``failed``: refused, or something in
    them has failed. A message that is left for later, because another process works on it, counts as neither.
    """

    def __init__(self) -> None:
        self.state = State.BOOT
        self.sub_state = ""
        self.job_id: UUID | None = None
        self.received = self.ended = self.failed = 0
        self._saved_at = float("-inf")
        self._first = True

    def transition(self, state: Consumer.State, *, job_id: UUID | None = None, stage: str = "", code: str = "") -> None:
        """Go to ``state``: log a change at once, and write the row at a change and every few seconds."""
        sub_state = SUB_STATES.get(Stage(stage), "") if stage in Stage.values else stage
        current = (state, sub_state, job_id)
        if current != (self.state, self.sub_state, self.job_id) or self._first:
            self.state, self.sub_state, self.job_id = current
            self._saved_at = float("-inf")
            fields: dict[str, Any] = {"code": code} if code else {}
            fields |= {"sub_state": sub_state, "job": str(job_id)} if job_id else {}
            write_line = log.warning if state == State.WAIT and code else log.info
            write_line("Consumer's state.", state=state.value, **fields)
        if time.monotonic() - self._saved_at >= WRITE_SECONDS:
            self.save()

    def save(self) -> None:
        """Write the row; while the database is away, the consumer goes on without it."""
        self._saved_at = time.monotonic()
        counts = {"received": self.received, "ended": self.ended, "failed": self.failed}
        params = {"name": shared_state.cluster_name(), "state": self.state.value, "job": self.job_id, **counts}
        try:
            with connection.cursor() as cursor:
                cursor.execute(UPSERT_CONSUMER, params | {"first": self._first})
            self._first = False
        except (DatabaseError, InterfaceError) as error:
            log.warning("The consumer's status could not be written.", error=safe_error_name(error))
            connection.close()
