"""SQS consumer: receives messages and holds each until its jobs have ended (spec 004 §1 to §3)."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
from django.conf import settings
from django.db import close_old_connections, connection
from django.db.utils import InterfaceError, OperationalError

from jobs.cluster import shared_state
from jobs.cluster.heartbeat import HEARTBEAT
from jobs.outcomes import StageFailure, Wait
from statutes import models
from statutes.consumer.in_flight_messages import InFlightMessage, InFlightMessages
from statutes.consumer.message_jobs import MessageJobs
from statutes.consumer.status_reporter import Status
from statutes.consumer.worker_thread import POLL_SECONDS, WorkerThread
from statutes.error_codes import DATABASE_AWAY
from statutes.sqs import client, dead_letters, message_bodies
from statutes.sqs.client import ReceivedMessage

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
State = models.Consumer.State
URGENT_SECONDS = 2  # how late an urgent message may be noticed during the long poll of the other queue
MIN_BACKOFF, MAX_BACKOFF = 1.0, 60.0  # seconds, while the queue or the database is away
MAX_RETRY_AFTER = 300.0  # the longest wait that the queue may ask for: it may be repaired by then
ALARM_SECONDS = 13  # from the end of the grace (15) to the kernel's alarm: at 30 hosts kill the process


class Interrupted(BaseException):
    """A second stop signal has arrived during a long poll."""


class Consumer:
    """One process and its states: BOOT, INIT, IDLE, PROCESSING, WAIT, SHUTDOWN.

    With ``works`` it runs the jobs of its messages itself; otherwise other workers do. ``mortal``: see
    ``WorkerThread``. ``until_idle``: it stops when it holds no message and the queue has none.
    """

    def __init__(self, *, works: bool = True, mortal: bool = False, until_idle: bool = False) -> None:
        self.status = Status()
        self.in_flight = InFlightMessages()
        self._mortal = mortal
        self.worker = WorkerThread(mortal=mortal) if works else None
        # By queue: after how many receives a message that always fails becomes a dead letter, if ever.
        self._most_receives: dict[str, int | None] = {}
        self.work = MessageJobs(self.in_flight, self.status, self._most_receives)
        self._until_idle = until_idle
        self._failures = 0
        self._listening = False
        self._stop_requested_at: float | None = None

    def run(self) -> bool:
        """Consume until a stop is requested; return whether all work ended in good order."""
        self.status.transition(State.BOOT)
        while not shared_state.is_stopping() and not self._try(self._read_queue_attributes):
            continue
        if not shared_state.is_stopping():
            self.in_flight.start()
            if self.worker:
                self.worker.start()
        while not shared_state.is_stopping():
            self._try(self._round)
        return self._shutdown()

    def interrupt(self) -> None:
        """Stop after the current long poll, whose messages have to be released; a second call stops at once."""
        if self._stop_requested_at is None:
            self._stop_requested_at = time.monotonic()
            # From here on the process ends by itself. The kernel's alarm ends whatever hangs, such as a call to a store
            # that no longer answers; 0 sets no alarm.
            HEARTBEAT.may_kill_process = False
            signal.alarm(int(settings.JOBS_STOP_GRACE_SECONDS) + ALARM_SECONDS if self._mortal else 0)
        if shared_state.is_stopping() and self._listening:
            self._listening = False
            raise Interrupted
        shared_state.request_stop()

    def _read_queue_attributes(self) -> None:
        self.status.transition(State.INIT)
        for url in client.queue_urls():
            self._most_receives[url] = dead_letters.max_receive_count(url)

    def _round(self) -> None:
        is_alive = self.in_flight.is_alive and (not self.worker or self.worker.is_alive)
        if not shared_state.is_stopping() and not is_alive:
            raise RuntimeError("A thread of this process has died: its messages would be lost, or held for ever.")
        self.work.report()
        self.work.settle_ended()
        self._dispatch()
        room = settings.SQS_MESSAGES_AT_ONCE - len(self.in_flight)
        if room > 0:
            batch = self._receive(room)
            if shared_state.is_stopping():  # received by a stopping process
                self.in_flight.release_all(InFlightMessage(received, []) for received in batch)
                return
            for received in batch:
                self._take(received)
            self._dispatch()
            if self._until_idle and not batch and not self.in_flight:
                shared_state.request_stop()
        self.work.report()
        if self.in_flight and self.worker:
            self.worker.changed.wait(POLL_SECONDS)
            self.worker.changed.clear()
        elif self.in_flight:
            time.sleep(POLL_SECONDS)

    def _dispatch(self) -> None:
        if self.work.dispatch(one=self.worker is not None) and self.worker:
            self.worker.wake()

    def _receive(self, room: int) -> list[ReceivedMessage]:
        """Poll the urgent queue first, and briefly while messages are held: their jobs may end meanwhile."""
        *urgent, queue_url = client.queue_urls()
        wait = max(1, min(settings.SQS_WAIT_SECONDS, 1 if self.in_flight else client.MAX_WAIT))
        for url in urgent:
            batch = client.receive_messages(url, most=room, wait=0, call_context=self._interruptible())
            if batch or shared_state.is_stopping():
                return batch
            wait = min(wait, URGENT_SECONDS)
        return client.receive_messages(queue_url, most=room, wait=wait, call_context=self._interruptible())

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        self._listening = True
        try:
            if shared_state.is_stopping():
                raise Interrupted
            yield
        finally:
            self._listening = False

    def _take(self, received: ReceivedMessage) -> None:
        if self.in_flight.readd(received):
            return
        self.status.received += 1
        body = message_bodies.parse_body(received.body)
        is_refused = bool(body.refused)
        # Left to the queue, which sooner or later moves it to the dead letters, where staff see it.
        for (code, part), times in Counter((refused.code, refused.field) for refused in body.refused).items():
            log.warning(
                "A message was refused.", code=code, field=part, times=times, message=received.message_id,
                receives=received.receives,
            )  # fmt: skip
        held = InFlightMessage(received, body.items, reappears=is_refused, has_failed=is_refused)
        if body.items or not is_refused:
            self.in_flight.add(held)  # its valid items are processed first
            return
        self.status.failed += 1
        most = self._most_receives.get(received.queue_url)
        if most and received.receives <= most:  # past that nothing removes it, and it would come back at once
            self.in_flight.release(held)

    def _try(self, step: Callable[[], None]) -> bool:
        """Run one step; wait a while when the queue or the database is away. Return whether it succeeded."""
        try:
            close_old_connections()
            step()
            self._failures = 0
            return True
        except Interrupted:
            return False
        except (OperationalError, InterfaceError):
            connection.close()
            self._wait(DATABASE_AWAY, 0.0)
        except Wait as postponed:
            self._wait(postponed.reason, postponed.seconds)
        except StageFailure as failure:
            self._wait(failure.code, getattr(failure, "retry_after", 0.0))
        return False

    def _wait(self, code: str, at_least: float) -> None:
        # Exponential; the jitter keeps consumers from coming back all at once.
        longest = min(MAX_BACKOFF, MIN_BACKOFF * 2**self._failures)
        pause = max(min(at_least, MAX_RETRY_AFTER), random.uniform(longest / 2, longest))  # noqa: S311
        until = time.monotonic() + pause
        self._failures = min(self._failures + 1, 16)
        while not shared_state.is_stopping() and (left := until - time.monotonic()) > 0:
            self.status.transition(State.WAIT, code=code)  # repeated, because a silent consumer counts as dead
            time.sleep(min(left, 0.1))

    def _shutdown(self) -> bool:
        """Finish the current stage, or release its job when the grace is over; release the messages that remain."""
        deadline = (self._stop_requested_at or time.monotonic()) + settings.JOBS_STOP_GRACE_SECONDS
        if self._stop_requested_at is None:  # it ends of itself
            HEARTBEAT.may_kill_process = False
            signal.alarm(0)
        self.status.transition(State.SHUTDOWN)
        self.in_flight.release_all(held for held in self.in_flight if not held.jobs)
        is_orderly = True
        if self.worker:
            self.worker.stop(max(0.0, deadline - time.monotonic()))
            is_orderly = not self.worker.is_alive
        try:
            if self.worker and not is_orderly:
                self.worker.release_jobs()
            self.work.settle_ended()
        except (OperationalError, InterfaceError, Wait, StageFailure):
            log.warning("The messages in flight could not be settled; they reappear.")
        self.in_flight.release_all(self.in_flight)
        self.in_flight.stop()
        self.status.save()
        return is_orderly
