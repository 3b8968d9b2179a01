"""The queue: SQS' few verbs, each with a time limit, none retried inside."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import httpx
from botocore.exceptions import BotoCoreError, ClientError
from django.conf import settings
from django.db import connection
from django.db.utils import DatabaseError, InterfaceError

from jobs.outcomes import Permanent, Wait
from statutes.error_codes import SQS_MESSAGE_LOST, SQS_NO_QUEUE
from vendors import aws, call_metrics, guard
from vendors.errors import ErrorResponse
from vendors.vendor import Vendor

MAX_WAIT = 20  # seconds, of a long poll
MAX_IN_FLIGHT_SECONDS = 12 * 3600  # seconds from its receipt, however often a message's visibility is extended
PROMPT_SECONDS = 5.0  # the longest that a call may take, of one that waits for nothing
GONE = ("ReceiptHandleIsInvalid", "MessageNotInflight", "InvalidParameterValue", "InvalidParameterValueException")
NO_QUEUE = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")
THROTTLED = "RequestThrottled"
MISSING_SECONDS, THROTTLED_SECONDS = 30.0, 5.0
FAILURES = (ClientError, BotoCoreError, httpx.HTTPError)  # of a call that does not go through the gate


class MessageLost(Permanent):
    """The message is no longer ours to change: its time was up, or it was deleted."""

    def __init__(self) -> None:
        super().__init__(SQS_MESSAGE_LOST)


@dataclass(slots=True)
class ReceivedMessage:
    """A message as it was handed out. Only the newest ``receipt`` deletes for certain."""

    queue_url: str
    message_id: str
    receipt: str
    body: str
    receives: int
    at: float = field(default_factory=time.monotonic)

    def visible_at_most(self, seconds: float) -> int:
        """Return for how long, from now, SQS lets the message be held: 0 when its 12 hours are over."""
        return max(0, int(min(seconds, MAX_IN_FLIGHT_SECONDS - 1 - (time.monotonic() - self.at))))


def receive_messages(
    queue_url: str,
    *,
    most: int = 1,
    wait: int = MAX_WAIT,
    asking: AbstractContextManager[object] = nullcontext(),  # noqa: B008  (has no state)
) -> list[ReceivedMessage]:
    """Take up to ``most`` messages for SQS_VISIBILITY_SECONDS, waiting for the first. Raises as ``vendors.guard``.

    ``asking`` is entered for the call alone, when no statement of the database is under way.
    """
    found: list[ReceivedMessage] = []
    try:
        # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html
        with _calling("receive"), asking:
            answer = _client(MAX_WAIT + PROMPT_SECONDS).receive_message(
                QueueUrl=queue_url,
                MaxNumberOfMessages=min(most, 10),
                WaitTimeSeconds=min(wait, MAX_WAIT),
                VisibilityTimeout=settings.SQS_VISIBILITY_SECONDS,
                MessageSystemAttributeNames=["ApproximateReceiveCount"],
            )
            found = [_received(queue_url, message) for message in answer.get("Messages", [])]
    except (DatabaseError, InterfaceError):
        if not found:
            raise
        connection.close()  # what was handed to us is held, whether or not we can write that the queue answered
    return found


def _received(queue_url: str, told: Any) -> ReceivedMessage:
    receives = int(told.get("Attributes", {}).get("ApproximateReceiveCount", 1))
    return ReceivedMessage(queue_url, told["MessageId"], told["ReceiptHandle"], told.get("Body", ""), receives)


def delete_message(message: ReceivedMessage) -> None:
    """Take a message out. Raises ``Lost`` where another has it by now, and as ``vendors.guard``."""
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_DeleteMessage.html
    with _calling("delete"):
        _client().delete_message(QueueUrl=message.queue_url, ReceiptHandle=message.receipt)


def change_visibility(message: ReceivedMessage, seconds: float) -> None:
    """Keep a message hidden for so long from now; 0 gives it back at once.

    Asks no database, which may be away while the message has to be held: raises ``Lost``, or one of ``FAILURES``.
    """
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html
    try:
        with call_metrics.record_call(_vendor(), "extend"):
            _client().change_message_visibility(
                QueueUrl=message.queue_url,
                ReceiptHandle=message.receipt,
                VisibilityTimeout=message.visible_at_most(seconds),
            )
    except ClientError as error:
        if error.response["Error"]["Code"] in GONE:
            raise MessageLost() from error
        raise


def send_message(told: dict[str, Any], *, queue_url: str = "", delay: int = 0) -> str:
    """Put a message into the queue (SQS_QUEUE_URL); return its id. Raises as ``vendors.guard``."""
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
    with _calling("send"):
        answer = _client().send_message(
            QueueUrl=queue_url or settings.SQS_QUEUE_URL,
            MessageBody=json.dumps(told, ensure_ascii=False, sort_keys=True),
            DelaySeconds=delay,
        )
    sent: str = answer["MessageId"]
    return sent


def queue_urls() -> list[str]:
    """Return the queues that are set, the one that is asked first before the other."""
    return [url for url in (settings.SQS_PRIORITY_QUEUE_URL, settings.SQS_QUEUE_URL) if url]


def queue_attributes(queue_url: str) -> dict[str, str]:
    """Return what the queue is set to. Raises as ``vendors.guard``."""
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_GetQueueAttributes.html
    with _calling("attributes"):
        found: dict[str, str] = _client().get_queue_attributes(QueueUrl=queue_url, AttributeNames=["All"])["Attributes"]
    return found


@contextmanager
def _calling(operation: str) -> Iterator[None]:
    with guard.guarded_call(_vendor(), operation, meaning=_meaning):
        yield


def _vendor() -> Vendor:
    return Vendor("sqs", f"{settings.SQS_ENDPOINT_URL or ''} {settings.SQS_REGION}", requests_per_minute=0)


def _client(seconds: float = PROMPT_SECONDS) -> Any:
    return aws.create_client("sqs", region=settings.SQS_REGION, endpoint=settings.SQS_ENDPOINT_URL, seconds=seconds)


def _meaning(answer: ErrorResponse) -> Exception | None:
    """A queue that is missing is waited for: somebody has to set it right. A message that is lost is nobody's fault."""
    if answer.vendor_code in NO_QUEUE:
        return Wait(MISSING_SECONDS, SQS_NO_QUEUE)
    if answer.vendor_code == THROTTLED:  # of status 400
        return Wait(THROTTLED_SECONDS, guard.LIMITED)
    return MessageLost() if answer.vendor_code in GONE else None
