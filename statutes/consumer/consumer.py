"""The consumer: takes messages, holds each until its job has ended, and lets the queue know (spec 004 §1 to §3)."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
from django.conf import settings
from django.db import close_old_connections, connection
from django.db.utils import InterfaceError, OperationalError

from jobs.cluster import shared_memory
from jobs.outcomes import StageFailure, Wait
from statutes.consumer.dispatcher import Dispatcher
from statutes.consumer.in_flight import InFlightMessage, InFlightMessages
from statutes.consumer.status import Status
from statutes.consumer.worker_thread import WorkerThread, disarm_stage_alarm
from statutes.error_codes import DATABASE_AWAY
from statutes.models import Consumer as Row
from statutes.sqs import client, dead_letters, envelope
from statutes.sqs.client import ReceivedMessage
from statutes.sqs.messages import MessageRefused

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
State = Row.State
TICK = 0.5  # how late the end of a job that another worker has may be noticed
URGENT_SECONDS = 2  # how late an urgent message may be noticed while the other queue is listened to
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # while the queue or the database is away
LONGEST_ASKED = 300.0  # that the queue may ask for: somebody may have mended it by then
LAST_SECONDS = 13  # from the end of the grace (15) to the process' own, whatever hangs: at 30 hosts kill it


class Interrupted(BaseException):
    """The process is told, for the second time, to stop while it listens to the queue."""


class Consumer:
    """One process' life: BOOT, INIT, IDLE, PROCESSING, WAIT, SHUTDOWN.

    One that ``works`` works on its messages itself; otherwise other workers do. ``mortal``: see ``Worker``.
    ``until_idle``: it stops when it holds nothing and the queue has nothing for it.
    """

    def __init__(self, *, works: bool = True, mortal: bool = False, until_idle: bool = False) -> None:
        self.status = Status()
        self.in_flight = InFlightMessages()
        self._mortal = mortal
        self.worker = WorkerThread(mortal=mortal) if works else None
        # By queue: after how many receipts what always fails ends in a queue for people, if ever.
        self._most_receives: dict[str, int | None] = {}
        self.work = Dispatcher(self.in_flight, self.status, self._most_receives)
        self._until_idle = until_idle
        self._failures = 0
        self._listening = False
        self._told_at: float | None = None  # to stop

    def run(self) -> bool:
        """Consume until told to stop; return whether all that was begun has ended or was let go of in good order.

        Raises ``ImproperlyConfigured`` for a queue that cannot be worked from.
        """
        self.status.transition(State.BOOT)
        while not shared_memory.is_stopping() and not self._tried(self._init):
            continue
        if not shared_memory.is_stopping():
            self.in_flight.start()
            if self.worker:
                self.worker.start()
        while not shared_memory.is_stopping():
            self._tried(self._round)
        return self._shutdown()

    def interrupt(self) -> None:
        """Stop once the queue has answered: what it hands out meanwhile has to be given back. Told again, stop at once.

        For signal handlers.
        """
        if self._told_at is None:
            self._told_at = time.monotonic()
            disarm_stage_alarm(at_last=int(settings.JOBS_STOP_GRACE_SECONDS) + LAST_SECONDS if self._mortal else 0)
        if shared_memory.is_stopping() and self._listening:
            self._listening = False
            raise Interrupted
        shared_memory.request_stop()

    def _init(self) -> None:
        self.status.transition(State.INIT)
        for url in client.queue_urls():
            self._most_receives[url] = dead_letters.max_receive_count(url)

    def _round(self) -> None:
        if not shared_memory.is_stopping() and not (
            self.in_flight.is_alive and (not self.worker or self.worker.is_alive)
        ):
            raise RuntimeError("A thread of this process has died: what is held would be lost, or be held for ever.")
        self.work.report()
        self.work.settle_ended()
        self._begin()
        room = settings.SQS_MESSAGES_AT_ONCE - len(self.in_flight)
        if room > 0:
            found = self._received(room)
            if shared_memory.is_stopping():  # handed out to one that has been told to stop
                self.in_flight.release_all(InFlightMessage(received, []) for received in found)
                return
            for received in found:
                self._take(received)
            self._begin()
            if self._until_idle and not found and not self.in_flight:
                shared_memory.request_stop()
        self.work.report()
        if self.in_flight and self.worker:
            self.worker.changed.wait(TICK)
            self.worker.changed.clear()
        elif self.in_flight:
            time.sleep(TICK)

    def _begin(self) -> None:
        """Begin the most urgent of what is held; all of it, where other workers take it from here."""
        if self.work.dispatch(one=self.worker is not None) and self.worker:
            self.worker.wake()

    def _received(self, room: int) -> list[ReceivedMessage]:
        """Ask the urgent queue first. Who holds something listens shortly, for its job may end meanwhile."""
        *urgent, queue_url = client.queue_urls()
        patience = max(1, min(settings.SQS_WAIT_SECONDS, 1 if self.in_flight else client.MAX_WAIT))
        for url in urgent:
            found = client.receive_messages(url, most=room, wait=0, asking=self._interruptible())
            if found or shared_memory.is_stopping():
                return found
            patience = min(patience, URGENT_SECONDS)
        return client.receive_messages(queue_url, most=room, wait=patience, asking=self._interruptible())

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        self._listening = True
        try:
            if not shared_memory.is_stopping():
                yield
            else:
                raise Interrupted
        finally:
            self._listening = False

    def _take(self, received: ReceivedMessage) -> None:
        if self.in_flight.readd(received):
            return
        self.status.received += 1
        asked = envelope.parse_body(received.body)
        self._say_refused(received, asked.refused)
        is_refused = bool(asked.refused)
        held = InFlightMessage(received, asked.items, reappears=is_refused, has_failed=is_refused)
        if asked.items or not is_refused:
            self.in_flight.add(held)  # what can be read is done first
            return
        self.status.failed += 1
        most = self._most_receives.get(received.queue_url)
        if most and received.receives <= most:  # past that nothing takes it out, and it would be here again at once
            self.in_flight.release(held)

    @staticmethod
    def _say_refused(received: ReceivedMessage, refused: list[MessageRefused]) -> None:
        """Say why a message is left to the dead letters, where people find it: sooner or later it is moved there."""
        about = {"message": received.message_id, "receives": received.receives}
        for (code, part), times in Counter((each.code, each.field) for each in refused).items():
            log.warning("A message was refused.", code=code, field=part, times=times, **about)

    def _tried(self, step: Callable[[], None]) -> bool:
        """Do one step; wait a while when the queue or the database is away. Tell whether it went well."""
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
        """Pause, the longer the more often it failed; the jitter keeps consumers from coming back all at once."""
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._failures)
        pause = max(min(at_least, LONGEST_ASKED), random.uniform(longest / 2, longest))  # noqa: S311
        until = time.monotonic() + pause
        self._failures = min(self._failures + 1, 16)
        while not shared_memory.is_stopping() and (left := until - time.monotonic()) > 0:
            self.status.transition(State.WAIT, code=code)  # now and then: who says nothing is taken for dead
            time.sleep(min(left, 0.1))

    def _shutdown(self) -> bool:
        """Finish the stage that is under way, or let go of it when the grace is over; give back what has not ended."""
        promised = (self._told_at or time.monotonic()) + settings.JOBS_STOP_GRACE_SECONDS
        if self._told_at is None:  # it ends of itself
            disarm_stage_alarm()
        self.status.transition(State.SHUTDOWN)
        self.in_flight.release_all(held for held in self.in_flight if not held.jobs)
        is_orderly = True
        if self.worker and self.worker.is_started:
            self.worker.stop(max(0.0, promised - time.monotonic()))
            is_orderly = not self.worker.is_alive
        try:
            if self.worker and not is_orderly:
                self.worker.release_jobs()
            self.work.settle_ended()
        except (OperationalError, InterfaceError, Wait, StageFailure):
            log.warning("What is held could not be settled; the messages reappear.")
        self.in_flight.release_all(self.in_flight)
        self.in_flight.stop()
        self.status.save()
        return is_orderly
