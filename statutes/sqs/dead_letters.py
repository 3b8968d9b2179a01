"""Dead-letter queues of SQS: redrive policy, listing, and redrive of messages into their source queue."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog
from django.core.exceptions import ImproperlyConfigured

from accounts.audit import log as audit_log
from accounts.models import User
from accounts.system_tenant import SYSTEM_TENANT_ID
from statutes.sqs import client, message_bodies, message_schema
from statutes.sqs.client import ReceivedMessage
from statutes.sqs.message_schema import Message, MessageRefused

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
MAX_MESSAGES = 1_000  # per redrive
PAGE_SIZE = 10  # messages per response
MIN_RECEIVES, USUAL_RECEIVES = 2, 3  # deliveries; spec 004 §3.3: 3 to 5


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message from a dead-letter queue. ``code`` says why no retry can succeed: such a message must be corrected."""

    received: ReceivedMessage
    queue_url: str  # of the source queue
    laws: tuple[str, ...]  # each with its version
    code: str = ""


def max_receive_count(queue_url: str) -> int | None:
    """Return after how many receives a message becomes a dead letter. Raises ``ImproperlyConfigured`` for 1."""
    policy = client.queue_attributes(queue_url).get("RedrivePolicy")
    if not policy:
        log.warning("The queue has no dead-letter queue: failed messages return until they expire.", code="SQS_NO_DLQ")
        return None
    count = int(json.loads(policy)["maxReceiveCount"])
    if count < MIN_RECEIVES:
        raise ImproperlyConfigured(
            f"The queue's maxReceiveCount is {count}: a message that a stopping worker returns would become a dead"
            f" letter. Set it to 3, 4 or 5."
        )
    if count < USUAL_RECEIVES:
        log.warning("The queue's maxReceiveCount is low.", code="SQS_FEW_RECEIVES", most=count)
    return count


def dead_letter_queue_url(queue_url: str) -> str | None:
    """Return the dead-letter queue of a queue. Raises as ``vendors.calls``."""
    policy = client.queue_attributes(queue_url).get("RedrivePolicy")
    if not policy:
        return None
    # SQS demands the same account and region: the URLs differ in their names alone.
    name = str(json.loads(policy)["deadLetterTargetArn"]).rpartition(":")[2]
    return f"{queue_url.rpartition('/')[0]}/{name}"


def queue_depth(queue_url: str) -> int:
    """Return the approximate number of visible messages. Raises as ``vendors.calls``."""
    return int(client.queue_attributes(queue_url).get("ApproximateNumberOfMessages", 0))


def receive_dead_letters(queue_urls: Sequence[str], *, most: int = MAX_MESSAGES) -> list[DeadLetter]:
    """Receive dead letters; finish with ``redrive`` or ``release_dead_letters``. Raises as ``vendors.calls``."""
    letters: dict[str, DeadLetter] = {}
    seen: set[str] = set()
    for queue_url in queue_urls:
        dead_url = dead_letter_queue_url(queue_url)
        if dead_url is None or dead_url in seen:
            continue
        seen.add(dead_url)
        room = most - len(letters)
        while room > 0 and (batch := client.receive_messages(dead_url, most=min(PAGE_SIZE, room), wait=1)):
            room -= len(batch)
            for received in batch:
                letters.setdefault(received.message_id, _parse_dead_letter(received, queue_url))
    return list(letters.values())


def _parse_dead_letter(received: ReceivedMessage, queue_url: str) -> DeadLetter:
    try:
        items = [item for item in message_bodies.parse_items(received.body) if isinstance(item, Message)]
    except MessageRefused as refused:
        return DeadLetter(received, queue_url, (), str(refused))
    return DeadLetter(received, queue_url, tuple(f"{item.law_id} {item.version}" for item in items))


def release_dead_letters(letters: Sequence[DeadLetter]) -> None:
    """Make the messages visible again at once; one that cannot be changed now becomes visible after its timeout."""
    for letter in letters:
        with suppress(client.MessageLost, *client.FAILURES):
            client.change_visibility(letter.received, 0)


def summarize(letters: Sequence[DeadLetter]) -> str:
    """Return a sentence: how many dead letters there are, and how many can be redriven."""
    valid = sum(not letter.code for letter in letters)
    stuck = f" {len(letters) - valid} cannot: they are invalid." if valid < len(letters) else ""
    redrivable = f" {valid} can be put back: manage.py laws redrive --yes." if valid else ""
    return f"{len(letters)} dead letters.{redrivable}{stuck}"


def redrive(letters: Sequence[DeadLetter], *, by: User | None, reason: str) -> int:
    """Move the valid messages back into their source queue, sent before they are deleted; return how many."""
    valid = [letter for letter in letters if not letter.code]
    audit_log.record_action(
        by=by, action="laws.redrive", reason=reason, object_type="queue", object_id="dead letters",
        tenant_id=SYSTEM_TENANT_ID, messages=len(valid),
    )  # fmt: skip
    for letter in valid:
        client.send_message(message_schema.parse_json(letter.received.body), queue_url=letter.queue_url)
        with suppress(client.MessageLost):  # another process holds it, and redrives it too
            client.delete_message(letter.received)
    return len(valid)
