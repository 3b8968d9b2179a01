"""Messages in flight: held in the order of their receipt, hidden from other consumers by a thread."""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

import structlog
from django.conf import settings

from statutes.sqs import client
from statutes.sqs.client import ReceivedMessage
from statutes.sqs.message_bodies import Item
from statutes.sqs.message_schema import Message

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
RENEWALS, RETRY_FACTOR = 3, 10  # renewals per visibility timeout; after a failed one they come so much faster


@dataclass(eq=False)
class InFlightMessage:
    """A received message: its items that are not started, and the jobs that were started for the others."""

    received: ReceivedMessage
    items: list[Item]
    jobs: dict[UUID, Message] = field(default_factory=dict)
    reappears: bool = False  # one of its jobs is to be retried, by the queue's next delivery
    pause: float = 0.0  # seconds to hide it then; 0 leaves the rest of its visibility timeout
    has_failed: bool = False  # one of its items
    is_lost: bool = False  # SQS may deliver it to another consumer; its job goes on, and is done once

    @property
    def urgency(self) -> int:
        return min((item.urgency for item in self.items if isinstance(item, Message)), default=0)


class InFlightMessages:
    """The messages that this process holds, in the order of their receipt."""

    def __init__(self) -> None:
        self._held: dict[str, InFlightMessage] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="visibility", daemon=True)
        self._changing = threading.Lock()  # a late renewal must not hide a message that was released meanwhile

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
        self._stopped.set()

    def add(self, held: InFlightMessage) -> None:
        self._held[held.received.message_id] = held

    def readd(self, received: ReceivedMessage) -> bool:
        """Update a message that was delivered again while it is held; return False for a message that is not held."""
        held = self._held.get(received.message_id)
        if held is not None:
            held.received, held.is_lost = received, False
        return held is not None

    def drop(self, held: InFlightMessage) -> None:
        self._held.pop(held.received.message_id, None)

    def release(self, held: InFlightMessage, *, after: float = 0) -> bool:
        """Let a message reappear after so many seconds, unless it is lost; return whether the queue answered."""
        self.drop(held)
        with self._changing:
            return held.is_lost or self._change_visibility(held, after)

    def release_all(self, messages: Iterable[InFlightMessage]) -> None:
        """Release messages until the queue does not answer: a stopping process cannot wait for it."""
        for held in messages:
            if not self.release(held):
                return

    def _run(self) -> None:
        interval = settings.SQS_VISIBILITY_SECONDS / RENEWALS
        pause = interval
        while not self._stopped.wait(pause):
            pause = interval if self.renew_all() else interval / RETRY_FACTOR

    def renew_all(self) -> bool:
        """Hide all messages again, up to 12 hours from their receipt; return whether the queue answered."""
        answered = True
        for held in self:
            if held.is_lost:
                continue
            left = held.received.visible_at_most(settings.SQS_VISIBILITY_SECONDS)
            if left < settings.SQS_VISIBILITY_SECONDS / RENEWALS:
                held.is_lost = True
                log.warning("A message has been held for 12 hours; it will reappear.", code="SQS_HELD_TOO_LONG")
                continue
            answered &= self.extend(held)
        return answered

    def extend(self, held: InFlightMessage) -> bool:
        """Hide a held message for SQS_VISIBILITY_SECONDS from now; return whether the queue answered."""
        with self._changing:
            is_held = held.received.message_id in self._held
            return not is_held or self._change_visibility(held, settings.SQS_VISIBILITY_SECONDS)

    def _change_visibility(self, held: InFlightMessage, seconds: float) -> bool:
        message_id = held.received.message_id
        try:
            client.change_visibility(held.received, seconds)
        except client.MessageLost as lost:
            held.is_lost = True
            log.warning("A message is no longer held by this consumer.", message=message_id, code=lost.code)
        except client.FAILURES as error:  # its timeout ends unless a later renewal succeeds
            log.warning("A message's visibility was not changed.", message=message_id, error=type(error).__name__)
            return False
        return True
