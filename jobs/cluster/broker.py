"""django-q2's broker, reduced to a doorbell: it says that something is due, never what."""

from __future__ import annotations

import os
import time
from typing import Any
from uuid import uuid4

import psycopg
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.utils import Error
from django.utils import timezone
from django_q.brokers import Broker
from django_q.conf import Conf
from django_q.signing import SignedPackage

from jobs import queries
from jobs.cluster import side_queues

CHANNEL = "accessa_jobs"
# How long the pusher listens before it looks by itself: what a lost ring costs.
LISTEN_SECONDS = 1.0
RECONNECT_SECONDS = 1.0  # how long to leave a database alone that is not there


class NotifyBroker(Broker):  # type: ignore[misc]
    """Rings by NOTIFY; hears by LISTEN on a connection of its own, in the pusher's process."""

    def __init__(self, list_key: str | None = None) -> None:
        super().__init__(list_key)
        self._ears: Any = None
        self._pid = 0

    def enqueue(self, task: str) -> str:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, '')", [CHANNEL])
        return uuid4().hex

    def dequeue(self) -> list[tuple[str, str]] | None:
        """Return a ring for each user who has something claimable, up to the number of workers, or None after a while.

        What is queued but may not run yet (its user is at the cap) rings nothing, or two long jobs of one user would
        keep every worker spinning. The queues beside the jobs are asked as well.
        """
        try:
            rings = self._claimable() or (self._hear() and self._claimable())
        except (psycopg.Error, Error):
            self.close()
            time.sleep(RECONNECT_SECONDS)
            return None
        return [("ring", _ring()) for _ in range(rings)] if rings else None

    def _claimable(self) -> int:
        with psycopg.Cursor(self._listening()) as cursor:
            jobs = queries.count_claimable(cursor, most=Conf.WORKERS)
            return jobs + side_queues.count_claimable(cursor, most=Conf.WORKERS - jobs)

    def _hear(self) -> bool:
        ears = self._listening()
        heard = list(ears.notifies(timeout=LISTEN_SECONDS, stop_after=1))
        # A burst of rings says no more than one: the rest of what has arrived is dropped.
        heard.extend(ears.notifies(timeout=0))
        return bool(heard)

    def _listening(self) -> Any:
        if self._ears is None or self._ears.closed or self._pid != os.getpid():
            own = connections.create_connection(DEFAULT_DB_ALIAS)
            own.ensure_connection()
            self._ears, self._pid = own.connection, os.getpid()
            self._ears.prepare_threshold = 0
            self._ears.execute(f"LISTEN {CHANNEL}")
        return self._ears

    def close(self) -> None:
        if self._ears is not None:
            self._ears.close()
        self._ears = None


def _ring() -> str:
    """Return the message that makes a worker drain, as ``async_task`` would sign it."""
    ring = {
        "id": uuid4().hex,
        "name": "ring",
        "func": "jobs.worker.drain",
        "args": (),
        "kwargs": {},
        "started": timezone.now(),
    }
    signed: str = SignedPackage.dumps(ring)
    return signed
