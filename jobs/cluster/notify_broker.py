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
from jobs.cluster import shared_state

CHANNEL = "accessa_jobs"
LISTEN_SECONDS = 1.0  # then ``dequeue`` returns
# The maintenance loop looks for work once a second and tells the pusher in shared memory of what nobody notified.
SHARED_MEMORY_SECONDS = 0.25
POLL_SECONDS = 10.0  # then the pusher looks itself, should the maintenance loop be held up
RECONNECT_SECONDS = 1.0  # while the database is unavailable


class NotifyBroker(Broker):  # type: ignore[misc]
    """Sends NOTIFY, and listens on a connection of its own in the pusher's process."""

    _connection: Any = None
    _pid = 0
    _next_look = _last_look = 0.0

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
            wake_ups = self._is_look_due() and self._count_claimable()
            wake_ups = wake_ups or (self._wait_for_news() and self._count_claimable())
        except (psycopg.Error, Error):
            self.close()
            time.sleep(RECONNECT_SECONDS)
            return None
        # As ``async_task`` would sign it.
        task = {"name": "wake-up", "func": "jobs.worker.drain", "args": (), "kwargs": {}, "started": timezone.now()}
        messages = [SignedPackage.dumps(task | {"id": uuid4().hex}) for _ in range(wake_ups)]
        return [("wake-up", str(message)) for message in messages] or None

    def _wait_for_news(self) -> bool:
        """Wait for a notification, or for what the maintenance loop has seen, for a second; tell whether to look."""
        until = time.monotonic() + LISTEN_SECONDS
        while not (is_due := self.wait_for_notification(SHARED_MEMORY_SECONDS) or self._is_look_due()):
            if time.monotonic() >= until:
                break
        return is_due

    def wait_for_notification(self, seconds: float = LISTEN_SECONDS) -> bool:
        """Wait for a notification; drop the rest of a burst, which says no more than its first one."""
        notifications = list(self._listen().notifies(timeout=seconds, stop_after=1))
        return bool(notifications + list(self._listen().notifies(timeout=0)))

    def _is_look_due(self) -> bool:
        return time.monotonic() >= self._next_look or shared_state.has_seen_work_since(self._last_look)

    def _count_claimable(self) -> int:
        began = time.monotonic()
        with psycopg.Cursor(self._listen()) as cursor:
            count = side_queues.find_work(cursor, most=Conf.WORKERS).claimable
        # While there is work, a notification may have been dropped as one of a burst.
        self._last_look, self._next_look = began, 0.0 if count else began + POLL_SECONDS
        return count

    def _listen(self) -> Any:
        if self._connection is None or self._connection.closed or self._pid != os.getpid():
            own, is_alone = connections.create_connection(DEFAULT_DB_ALIAS), connection.connection is None
            own.ensure_connection()
            if is_alone:  # Django has opened it too, to look up the numbers of types
                connection.close()
            self._connection, self._pid, self._next_look = own.connection, os.getpid(), 0.0
            self._connection.prepare_threshold = 0
            self._connection.execute(f"LISTEN {CHANNEL}")
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
