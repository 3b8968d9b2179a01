"""Can laws be worked on: the queue with its dead letters, who takes its messages, and the bucket of artifacts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

from django.conf import settings
from django.db.models.functions import Now

from accessa.checks import s3_errors
from accessa.doctor.runner import Finding, doubtful, not_needed, note, wrong
from jobs.outcomes import Postponed, StageFailure
from statutes.consumer import status
from statutes.models import Consumer
from statutes.s3 import client as objects
from statutes.sqs import client as sqs
from statutes.sqs import dead_letters
from statutes.sqs.client import ReceivedMessage
from vendors import guard

QUEUES = ("SQS_QUEUE_URL", "SQS_PRIORITY_QUEUE_URL")
RIGHTS = "sqs:ReceiveMessage, sqs:DeleteMessage, sqs:ChangeMessageVisibility, sqs:SendMessage, sqs:GetQueueAttributes"
REACH = "Let this machine out to SQS, or correct SQS_REGION and SQS_ENDPOINT_URL."
REMEDIES = {
    "SQS_NO_QUEUE": ("is no queue that is there", "Correct it, or SQS_REGION."),
    guard.KEY: ("refuses the key, or there is none", f"Let the role or the key do {RIGHTS}."),
    guard.LIMITED: ("has had too many calls", "Run doctor again in a minute."),
    guard.AWAY: ("has failed again and again; calls are held back", "Wait, or look at AWS' health page."),
    "VENDOR_UNAVAILABLE": ("has a fault of its own", "Wait, or look at AWS' health page."),
    "VENDOR_REFUSED": ("refuses what it is asked", "Look whether it is the address of a queue of SQS."),
}
# No law's id begins with a dot: nothing there is ever taken for a law's.
PREFIXES, PROBE, CONTENT = ("normalized", "chunks", "embeddings", "failed"), ".doctor", b"written by manage.py doctor"
DO = "Let the key do s3:PutObject, s3:GetObject, s3:DeleteObject below normalized/, chunks/, embeddings/ and failed/."
READ = "Let the key do s3:GetObject below raw/, and s3:ListBucket: without it a missing file looks like a refusal."
MISSING = f"STATUTES_BUCKET: {s3_errors.NO_BUCKET}."
WAITS_LONG = timedelta(minutes=5)
LOOKED_INTO = 50  # dead letters, in the seconds that a check has


def queue() -> Iterator[Finding]:
    if not settings.SQS_QUEUE_URL:
        yield not_needed("SQS_QUEUE_URL is not set")
        return
    giving_up: dict[str, list[str]] = {}  # by their dead letters, which queues may share
    for name in QUEUES:
        if url := getattr(settings, name):
            yield from _asked(name, url, giving_up)
    for dead_url, names in giving_up.items():
        yield from _given_up(dead_url, names)
    yield from _consumers()


def _asked(name: str, url: str, giving_up: dict[str, list[str]]) -> Iterator[Finding]:
    try:
        found = sqs.queue_attributes(url)
        yield from _policy(name, url, found.get("RedrivePolicy"))
        if dead_url := dead_letters.dead_letter_queue_url(url):
            giving_up.setdefault(dead_url, []).append(name)
        yield from _rights(name, url)
    except Postponed as postponed:
        yield _away(name, postponed.wait.reason)
    except StageFailure as failure:
        yield _away(name, failure.code)
    else:
        waiting = found.get("ApproximateNumberOfMessages", "0")
        yield note(f"({name}: {waiting} waiting, {found.get('ApproximateNumberOfMessagesNotVisible', '0')} held)")


def _away(name: str, code: str) -> Finding:
    says, remedy = REMEDIES.get(code, (f"does not answer ({code})", REACH))
    return wrong(f"{name} {says}.", remedy)


def _policy(name: str, url: str, policy: str | None) -> Iterator[Finding]:
    if not policy:
        yield doubtful(
            f"{name} has no dead-letter queue: what always fails comes back until it expires.",
            "Give the queue a redrive policy with maxReceiveCount 3 to 5.",
        )
        return
    most = int(json.loads(policy)["maxReceiveCount"])
    if most < dead_letters.MIN_RECEIVES:
        yield wrong(f"maxReceiveCount of {name} is {most}: no consumer begins.", "Set it to 3, 4 or 5.")
    elif most < dead_letters.USUAL_RECEIVES:
        yield doubtful(f"maxReceiveCount of {name} is {most}: one hiccup is half of it.", "Set it to 3, 4 or 5.")


def _given_up(dead_url: str, names: list[str]) -> Iterator[Finding]:
    """Count them, and look into some, which are back at once: what nobody can read is not to be put back."""
    try:
        dead = dead_letters.queue_depth(dead_url)
        some = dead_letters.receive_dead_letters([getattr(settings, names[0])], most=LOOKED_INTO) if dead else []
        dead_letters.release_dead_letters(some)
    except Postponed as postponed:
        yield _away(f"The dead-letter queue of {names[0]}", postponed.wait.reason)
        return
    except StageFailure as failure:
        yield _away(f"The dead-letter queue of {names[0]}", failure.code)
        return
    if dead:
        says = "1 message was given up" if dead == 1 else f"{dead} messages were given up"
        sound = sum(not each.code for each in some)
        of = f"Of {len(some)} looked into, " if len(some) < dead else ""
        remedy = (
            f"Look at them: manage.py laws redrive. {of}{sound} can be put back (--yes), {len(some) - sound} cannot."
        )
        yield doubtful(f"{says} ({' and '.join(names)}).", remedy)


def _rights(name: str, url: str) -> Iterator[Finding]:
    """Ask to delete and to extend what is no message: who may do that is told so, and who may not is refused."""
    nothing = ReceivedMessage(url, "doctor", "doctor", "", 0)
    for right, ask in (
        ("DeleteMessage", sqs.delete_message),
        ("ChangeMessageVisibility", lambda each: sqs.change_visibility(each, 1)),
    ):
        try:
            with suppress(sqs.MessageLost):
                ask(nothing)
        except (Postponed, StageFailure, *sqs.FAILURES):
            yield wrong(f"sqs:{right} is refused for {name}.", f"Let the role or the key do {RIGHTS}.")


def _consumers() -> Iterator[Finding]:
    alive = status.alive_consumers()
    if not (count := alive.count()):
        yield wrong("No consumer is alive: no message is worked on.", "Start one: manage.py consume_sqs")
        return
    stuck = alive.filter(state=Consumer.State.WAIT, changed_at__lt=Now() - WAITS_LONG)
    for consumer in stuck.order_by("name")[:3]:
        yield doubtful(f"The consumer {consumer.name} has waited for minutes.", "Its log says for what, with a code.")
    yield note(f"({count} {'consumer' if count == 1 else 'consumers'} alive)")


def bucket() -> Iterator[Finding]:
    """Write, read and remove a small object where each kind of artifact goes, and look for one among the raw files."""
    if not settings.STATUTES_BUCKET:
        yield not_needed("STATUTES_BUCKET is not set")
        return
    for prefix in PREFIXES:
        for finding in _kept(f"{prefix}/{PROBE}/{uuid4()}", prefix):
            yield finding
            if finding.says == MISSING:  # nothing else of it can be known
                return
    try:
        objects.head_object(settings.STATUTES_BUCKET, f"raw/{PROBE}/{uuid4()}")
    except FileNotFoundError:
        return
    except OSError as error:
        why, remedy = s3_errors.explain_s3_error("statutes", error)
        yield wrong(f"Files below raw/ of STATUTES_BUCKET cannot be looked at: {why}.", f"{READ} {remedy}")


def _kept(key: str, prefix: str) -> Iterator[Finding]:
    place = settings.STATUTES_BUCKET
    try:
        objects.put_object(place, key, CONTENT)
        given = objects.read_object(place, key)
        objects.delete_object(place, key)
    except OSError as error:
        why, remedy = s3_errors.explain_s3_error("statutes", error)
        if why == s3_errors.NO_BUCKET:
            yield wrong(MISSING, remedy)
            return
        yield wrong(f"STATUTES_BUCKET cannot be written and emptied below {prefix}/: {why}.", f"{DO} {remedy}")
        with suppress(OSError):
            objects.delete_object(place, key)
        return
    if given != CONTENT:
        yield wrong(f"STATUTES_BUCKET does not give back what was written below {prefix}/.", "Look at the store.")
