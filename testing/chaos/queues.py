"""Quick jobs and webhooks beside the documents of the kill loop: deaths in batches of claims and in the outbox."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from testing.cluster import create_jobs
from testing.fakes.callback_receiver import CallbackReceiver

POINTS = (
    *(f"batch:{moment}" for moment in ("middle", "before-commit", "after-commit")),
    *(f"alone:{moment}" for moment in ("before-commit", "after-commit")),  # a document's end, with the next claim
    "outbox:claimed",
    "outbox:sent",
)
SETTINGS = {"JOBS_PIPELINES": "testing.stub_pipelines.PIPELINES", "WEBHOOKS_ALLOW_LOOPBACK": "true"}
QUICK_JOBS, QUICK_USERS = 300, 60
UNFINISHED = "SELECT count(*) FROM upload_jobs WHERE pipeline = 'noop' AND state <> 'done'"
UNSENT = "SELECT count(*) FROM outbox WHERE state = 'queued'"
# The documents whose end no receiver was told of, and what was written for one more than once.
UNTOLD = """
    SELECT count(*) FROM upload_jobs j WHERE pipeline = 'insurance' AND state = 'done' AND NOT EXISTS (
        SELECT FROM outbox o WHERE o.payload -> 'data' ->> 'job_id' = j.job_id::text AND o.state = 'delivered')"""
# By endpoint: a subscription whose answer a kill cut off is made again, and that user has two.
DOUBLED = """
    SELECT coalesce(sum(n - 1), 0)::int
    FROM (SELECT count(*) AS n FROM outbox GROUP BY payload -> 'data' ->> 'job_id', target_id) m"""


@dataclass
class Deliveries:
    """What the kill loop's quick jobs and webhooks have come to."""

    quick_unfinished: int = 0
    untold: int = 0  # documents
    doubled: int = 0  # messages in the outbox
    unreceived: int = 0  # messages that count as delivered
    received_again: int = 0
    received_again_bound: int = 0
    batches_lost: int = 0

    @property
    def ok(self) -> bool:
        lost = self.quick_unfinished or self.untold or self.unreceived
        return not lost and not self.doubled and self.received_again <= self.received_again_bound


class Queues:
    """Feeds a cluster with quick jobs while a batch's death is to come; receives the webhooks of its documents."""

    def __init__(self, database: psycopg.Connection[Any], armed: Path) -> None:
        self.receiver = CallbackReceiver().open()
        self._database, self._armed = database, armed

    def feed(self) -> None:
        """Queue quick jobs once only deaths in batches are to come: the others are those of documents."""
        left = [path.name for path in self._armed.glob("*~*")]
        if left and all(name.startswith("batch:") for name in left) and not self._value(UNFINISHED):
            create_jobs(self._database.cursor(), QUICK_JOBS, "noop", users=QUICK_USERS)

    def is_idle(self) -> bool:
        """Tell whether every message is sent: a dead worker's claim of one lasts a minute and a half."""
        return not self._value(UNSENT)

    def deliveries(self) -> Deliveries:
        letters = Counter(letter.headers["webhook-id"] for letter in self.receiver.letters)
        delivered = self._database.execute("SELECT id::text FROM outbox WHERE state = 'delivered'").fetchall()
        return Deliveries(
            quick_unfinished=self._value(UNFINISHED),
            untold=self._value(UNTOLD),
            doubled=self._value(DOUBLED),
            unreceived=sum(letters[message] == 0 for (message,) in delivered),
            received_again=letters.total() - len(letters),
            batches_lost=self._value("SELECT count(*) FROM events WHERE code = 'BATCH_LOST'"),
        )

    def _value(self, sql: str) -> int:
        row = self._database.execute(sql).fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        self.receiver.close()
