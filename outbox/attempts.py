"""Outcome of an attempt to send a message of the outbox, and the interface of senders."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from accounts.errors import ErrorCode
from outbox.models import Message


@dataclass(frozen=True, slots=True)
class Attempt:
    """``code`` is None for a success. A final failure is not tried again."""

    code: ErrorCode | None = None
    status: int | None = None  # of HTTP
    is_final: bool = False
    retry_after: float = 0.0  # seconds that the receiver asks for


class Sender(Protocol):
    """Interface of the modules of ``settings.OUTBOX_SENDERS``."""

    def prepare(self, message: Message) -> Callable[[], Attempt]:
        """Read what sending needs. The call runs in a thread, uses no database and ends within SEND_SECONDS."""

    def record(self, message: Message, attempt: Attempt) -> None:
        """Write what an attempt says of the receiver, in the transaction that settles the message."""
