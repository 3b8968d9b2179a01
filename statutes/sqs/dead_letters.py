"""Messages that were given up: shown, and put back into the queue that gave them up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from accounts.audit import log
from accounts.models import User
from accounts.system_tenant import SYSTEM_TENANT_ID
from statutes.sqs import client, envelope, messages
from statutes.sqs.client import Received
from statutes.sqs.messages import Message, MessageRefused

MOST = 1_000  # at once
FULL = 10  # messages of one answer


@dataclass(frozen=True, slots=True)
class Dead:
    """A message that was given up. ``code`` says why no later try goes better: it is to be mended, not put back."""

    received: Received
    queue_url: str  # that gave it up
    laws: tuple[str, ...]  # each with its version
    code: str = ""


def dead_letters_of(queue_url: str) -> str | None:
    """Return the queue into which this one gives up. Raises as ``vendors.guard``."""
    policy = client.attributes(queue_url).get("RedrivePolicy")
    if not policy:
        return None
    # In the same account and region, SQS demands: the addresses differ in their names alone.
    name = str(json.loads(policy)["deadLetterTargetArn"]).rpartition(":")[2]
    return f"{queue_url.rpartition('/')[0]}/{name}"


def depth(queue_url: str) -> int:
    """Return about how many messages could be received. Raises as ``vendors.guard``."""
    return int(client.attributes(queue_url).get("ApproximateNumberOfMessages", 0))


def held(queue_urls: Sequence[str], *, most: int = MOST) -> list[Dead]:
    """Take what was given up, until it is put back by ``move`` or let go of by ``let_go``. Raises as ``vendors.guard``.

    Whatever happens, it is there again after SQS_VISIBILITY_SECONDS.
    """
    found: dict[str, Dead] = {}
    seen: set[str] = set()
    for queue_url in queue_urls:
        dead_url = dead_letters_of(queue_url)
        if dead_url is None or dead_url in seen:
            continue
        seen.add(dead_url)
        for received in _received(dead_url, most - len(found)):
            found.setdefault(received.message_id, _read(received, queue_url))
    return list(found.values())


def _received(dead_url: str, most: int) -> Iterator[Received]:
    while most > 0:
        some = client.receive(dead_url, most=min(FULL, most), wait=1)
        yield from some
        most -= len(some)
        if not some:
            return


def _read(received: Received, queue_url: str) -> Dead:
    try:
        items = [item for item in envelope.read(received.body) if isinstance(item, Message)]
    except MessageRefused as refused:
        return Dead(received, queue_url, (), f"{refused.code} {refused.field}".strip())
    return Dead(received, queue_url, tuple(f"{item.law_id} {item.version}" for item in items))


def let_go(found: Sequence[Dead]) -> None:
    """Let others see what was taken, at once; what cannot be told now is seen after a while anyway."""
    for each in found:
        with suppress(client.Lost, *client.FAILURES):
            client.extend(each.received, 0)


def told(found: Sequence[Dead]) -> str:
    """Say how many were given up, and what can be done about them."""
    sound = sum(not each.code for each in found)
    stuck = f" {len(found) - sound} cannot: nobody could work on them." if sound < len(found) else ""
    put = f" {sound} can be put back: manage.py laws redrive --yes." if sound else ""
    return f"{len(found)} given up.{put}{stuck}"


def move(found: Sequence[Dead], *, by: User | None, reason: str) -> int:
    """Put back what can be worked on, each into its queue; return how many. Raises ``Refused("REASON_REQUIRED")``.

    Sent before it is taken out: a crash between the two leaves it in both, and its law is done once all the same.
    """
    sound = [each for each in found if not each.code]
    log.record_action(
        by=by, action="laws.redrive", reason=reason, object_type="queue", object_id="dead letters",
        tenant_id=SYSTEM_TENANT_ID, messages=len(sound),
    )  # fmt: skip
    for each in sound:
        client.send(messages.opened(each.received.body), queue_url=each.queue_url)
        with suppress(client.Lost):  # another has it, and puts it back too
            client.delete(each.received)
    return len(sound)
