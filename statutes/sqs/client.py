"""SQS client: one function per API operation, each with a time limit and without retries."""

import json
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import httpx
from botocore.exceptions import BotoCoreError, ClientError
from django.conf import settings
from django.db import connection
from django.db.utils import DatabaseError, InterfaceError

from jobs.outcomes import Permanent, Wait
from statutes.error_codes import SQS_MESSAGE_LOST, SQS_NO_QUEUE
from vendors import aws_client, calls
from vendors.call_failures import ErrorResponse
from vendors.error_codes import VENDOR_RATE_LIMITED
from vendors.vendor_account import Vendor

MAX_WAIT = 20  # seconds, of a long poll
MAX_IN_FLIGHT_SECONDS = 12 * 3600  # after its receipt SQS lets no message be hidden longer
CALL_SECONDS = 5.0  # time limit of a call that does not wait for messages
GONE = ("ReceiptHandleIsInvalid", "MessageNotInflight", "InvalidParameterValue", "InvalidParameterValueException")
NO_QUEUE = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")
THROTTLED = "RequestThrottled"
MISSING_SECONDS, THROTTLED_SECONDS = 30.0, 5.0
FAILURES = (ClientError, BotoCoreError, httpx.HTTPError)  # of a call without ``vendors.calls``


class MessageLost(Permanent):
    """The message is no longer held: its visibility timeout has ended, or it was deleted."""

    def __init__(self) -> None:
        super().__init__(SQS_MESSAGE_LOST)


@dataclass(slots=True)
class ReceivedMessage:
    """A message as it was delivered. Only the newest ``receipt`` deletes for certain."""

    queue_url: str
    message_id: str
    receipt: str
    body: str
    receives: int
    at: float = field(default_factory=time.monotonic)

    def visible_at_most(self, seconds: float) -> int:
        """Return ``seconds``, or what is left of the 12 hours for which SQS lets a message be hidden."""
        return max(0, int(min(seconds, MAX_IN_FLIGHT_SECONDS - 1 - (time.monotonic() - self.at))))


def receive_messages(
    queue_url: str,
    *,
    most: int = 1,
    wait: int = MAX_WAIT,
    call_context: AbstractContextManager[object] = nullcontext(),  # noqa: B008  (has no state)
) -> list[ReceivedMessage]:
    """Receive up to ``most`` messages for SQS_VISIBILITY_SECONDS, waiting for the first. Raises as ``vendors.calls``.

    ``call_context`` is entered for the call alone, while no database statement runs.
    """
    messages: list[ReceivedMessage] = []
    try:
        # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html
        with _guarded("receive"), call_context:
            response = _client(MAX_WAIT + CALL_SECONDS).receive_message(
                QueueUrl=queue_url,
                MaxNumberOfMessages=min(most, 10),
                WaitTimeSeconds=min(wait, MAX_WAIT),
                VisibilityTimeout=settings.SQS_VISIBILITY_SECONDS,
                MessageSystemAttributeNames=["ApproximateReceiveCount"],
            )
            for message in response.get("Messages", []):
                receives = int(message.get("Attributes", {}).get("ApproximateReceiveCount", 1))
                messages.append(
                    ReceivedMessage(
                        queue_url, message["MessageId"], message["ReceiptHandle"], message.get("Body", ""), receives
                    )
                )
    except (DatabaseError, InterfaceError):
        if not messages:
            raise
        connection.close()  # the messages were delivered, whether or not the call can be recorded
    return messages


def delete_message(message: ReceivedMessage) -> None:
    """Delete a message. Raises ``MessageLost`` where another consumer has it by now, and as ``vendors.calls``."""
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_DeleteMessage.html
    with _guarded("delete"):
        _client().delete_message(QueueUrl=message.queue_url, ReceiptHandle=message.receipt)


def change_visibility(message: ReceivedMessage, seconds: float) -> None:
    """Hide a message for so many seconds; no database is used. Raises ``MessageLost``, or one of ``FAILURES``."""
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html
    try:
        with calls.record_call(_vendor(), "extend"):
            _client().change_message_visibility(
                QueueUrl=message.queue_url,
                ReceiptHandle=message.receipt,
                VisibilityTimeout=message.visible_at_most(seconds),
            )
    except ClientError as error:
        if error.response["Error"]["Code"] in GONE:
            raise MessageLost() from error
        raise


def send_message(body: dict[str, Any], *, queue_url: str = "", delay: int = 0) -> str:
    """Send a message to a queue (default SQS_QUEUE_URL); return its id. Raises as ``vendors.calls``."""
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
    with _guarded("send"):
        response = _client().send_message(
            QueueUrl=queue_url or settings.SQS_QUEUE_URL,
            MessageBody=json.dumps(body, ensure_ascii=False, sort_keys=True),
            DelaySeconds=delay,
        )
    return str(response["MessageId"])


def queue_urls() -> list[str]:
    """Return the URLs of the configured queues, the priority queue first."""
    return [url for url in (settings.SQS_PRIORITY_QUEUE_URL, settings.SQS_QUEUE_URL) if url]


def queue_attributes(queue_url: str) -> dict[str, str]:
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_GetQueueAttributes.html
    with _guarded("attributes"):
        return dict(_client().get_queue_attributes(QueueUrl=queue_url, AttributeNames=["All"])["Attributes"])


def _guarded(operation: str) -> AbstractContextManager[object]:
    return calls.guarded_call(_vendor(), operation, interpret=_map_error)


def _vendor() -> Vendor:
    return Vendor("sqs", f"{settings.SQS_ENDPOINT_URL or ''} {settings.SQS_REGION}", requests_per_minute=0)


def _client(seconds: float = CALL_SECONDS) -> Any:
    return aws_client.create_client(
        "sqs", region=settings.SQS_REGION, endpoint=settings.SQS_ENDPOINT_URL, seconds=seconds
    )


def _map_error(response: ErrorResponse) -> Exception | None:
    """Wait for a missing queue, which an operator has to create; a lost message is no error of the vendor."""
    if response.vendor_code in NO_QUEUE:
        return Wait(MISSING_SECONDS, SQS_NO_QUEUE)
    if response.vendor_code == THROTTLED:  # with status 400
        return Wait(THROTTLED_SECONDS, VENDOR_RATE_LIMITED)
    return MessageLost() if response.vendor_code in GONE else None
