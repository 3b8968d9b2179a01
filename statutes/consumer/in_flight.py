"""Messages while they are worked on: kept from other consumers by a thread that renews their invisibility."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

import structlog
from django.conf import settings

from statutes.sqs import client
from statutes.sqs.client import ReceivedMessage
from statutes.sqs.envelope import Item
from statutes.sqs.messages import Message

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
BEATS, HASTE = 3, 10  # a visibility is renewed so often before it ends; after a beat that failed, sooner


@dataclass(eq=False)
class InFlightMessage:
    """A message of ours: what it asks for and is not begun, and the jobs that were begun for it."""

    received: ReceivedMessage
    items: list[Item]
    jobs: dict[UUID, Message] = field(default_factory=dict)
    reappears: bool = False  # one of its jobs is to be tried again, by the queue's next delivery
    pause: float = 0.0  # in seconds, for which it is hidden then; 0 leaves what is left of its time
    has_failed: bool = False  # something of what it asks for
    is_lost: bool = False  # SQS may hand it to another; its work goes on, and is done once

    @property
    def urgency(self) -> int:
        return min((item.urgency for item in self.items if isinstance(item, Message)), default=0)

    @property
    def is_over(self) -> bool:
        return not self.items and not self.jobs


class InFlightMessages:
    """The messages that this process holds, in the order of their receipt."""

    def __init__(self) -> None:
        self._held: dict[str, InFlightMessage] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="visibility", daemon=True)
        self._telling = threading.Lock()  # a beat that is late must not hide what was given back meanwhile

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[InFlightMessage]:
        return iter(list(self._held.values()))

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._ended.set()

    def add(self, held: InFlightMessage) -> None:
        self._held[held.received.message_id] = held

    def readd(self, received: ReceivedMessage) -> bool:
        """Take note of a message that was handed to us once more; tell whether it is one that is held."""
        held = self._held.get(received.message_id)
        if held is not None:
            held.received, held.is_lost = received, False
        return held is not None

    def drop(self, held: InFlightMessage) -> None:
        """Hold a message no longer; it reappears when its time is up."""
        self._held.pop(held.received.message_id, None)

    def release(self, held: InFlightMessage, *, after: float = 0) -> bool:
        """Hold a message no longer, and let it reappear, at once or later; tell whether the queue answered.

        One that another may have by now is left alone.
        """
        self.drop(held)
        with self._telling:
            return held.is_lost or self._told(held, after)

    def release_all(self, those: Iterable[InFlightMessage]) -> None:
        """Give back as many as the queue hears of: who has to stop cannot wait for one that is away."""
        for held in those:
            if not self.release(held):
                return

    def _beat(self) -> None:
        every = settings.SQS_VISIBILITY_SECONDS / BEATS
        pause = every
        while not self._ended.wait(pause):
            pause = every if self.renew_all() else every / HASTE

    def renew_all(self) -> bool:
        """Extend the invisibility of all that is held, up to the 12 hours that SQS allows from a receipt.

        Tells whether the queue has answered.
        """
        answered = True
        for held in self:
            if held.is_lost:
                continue
            if held.received.visible_at_most(settings.SQS_VISIBILITY_SECONDS) < settings.SQS_VISIBILITY_SECONDS / BEATS:
                held.is_lost = True
                log.warning("A message has been held for 12 hours; it will reappear.", code="SQS_HELD_TOO_LONG")
                continue
            answered &= self.extend(held)
        return answered

    def extend(self, held: InFlightMessage) -> bool:
        """Keep a message that is held hidden for SQS_VISIBILITY_SECONDS from now; tell whether the queue answered."""
        with self._telling:
            return held.received.message_id not in self._held or self._told(held, settings.SQS_VISIBILITY_SECONDS)

    def _told(self, held: InFlightMessage, seconds: float) -> bool:
        try:
            client.change_visibility(held.received, seconds)
        except client.MessageLost as lost:
            held.is_lost = True
            log.warning("A message is no longer held by us.", message=held.received.message_id, code=lost.code)
        except client.FAILURES as error:  # its time runs out unless a later beat succeeds
            named = type(error).__name__
            log.warning("A message's visibility was not changed.", message=held.received.message_id, error=named)
            return False
        return True
