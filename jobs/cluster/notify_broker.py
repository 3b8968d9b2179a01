"""Broker of django-q2 over LISTEN/NOTIFY: its messages only wake workers and carry no state."""

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

from jobs import side_queues

CHANNEL = "accessa_jobs"
LISTEN_SECONDS = 1.0  # then the pusher polls: the cost of a lost notification
RECONNECT_SECONDS = 1.0  # while the database is unavailable


class NotifyBroker(Broker):  # type: ignore[misc]
    """Sends NOTIFY, and listens on a connection of its own in the pusher's process."""

    _connection: Any = None
    _pid = 0

    def enqueue(self, task: str) -> str:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, '')", [CHANNEL])
        return uuid4().hex

    def dequeue(self) -> list[tuple[str, str]] | None:
        """Return a wake-up for each user with claimable work, up to the number of workers, or None after a second.

        Jobs of a user who is at the concurrency limit wake nobody, or two long jobs would keep every worker spinning.
        The side queues count as well.
        """
        try:
            wake_ups = self._count_claimable() or (self.wait_for_notification() and self._count_claimable())
        except (psycopg.Error, Error):
            self.close()
            time.sleep(RECONNECT_SECONDS)
            return None
        # As ``async_task`` would sign it.
        task = {"name": "wake-up", "func": "jobs.worker.drain", "args": (), "kwargs": {}, "started": timezone.now()}
        messages = [SignedPackage.dumps(task | {"id": uuid4().hex}) for _ in range(wake_ups)]
        return [("wake-up", str(message)) for message in messages] or None

    def wait_for_notification(self) -> bool:
        """Wait for a second; drop the rest of a burst, which says no more than its first notification."""
        notifications = list(self._listen().notifies(timeout=LISTEN_SECONDS, stop_after=1))
        return bool(notifications + list(self._listen().notifies(timeout=0)))

    def _count_claimable(self) -> int:
        with psycopg.Cursor(self._listen()) as cursor:
            return side_queues.find_work(cursor, most=Conf.WORKERS).claimable

    def _listen(self) -> Any:
        if self._connection is None or self._connection.closed or self._pid != os.getpid():
            own, is_alone = connections.create_connection(DEFAULT_DB_ALIAS), connection.connection is None
            own.ensure_connection()
            if is_alone:  # Django has opened it too, to look up the numbers of types
                connection.close()
            self._connection, self._pid = own.connection, os.getpid()
            self._connection.prepare_threshold = 0
            self._connection.execute(f"LISTEN {CHANNEL}")
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
