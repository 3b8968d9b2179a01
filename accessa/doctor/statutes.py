"""Checks of the statute worker: SQS queues, dead letters, rights, live consumers, the bucket of artifacts."""

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from uuid import uuid4

from django.conf import settings
from django.db.models.functions import Now

from accessa.checks import s3_error_messages
from accessa.doctor.findings import Finding, error, note, skipped, warning
from jobs.outcomes import StageFailure, Wait
from statutes.models import ALIVE, Consumer
from statutes.s3 import client as s3
from statutes.sqs import client as sqs
from statutes.sqs import dead_letters
from vendors.error_codes import VENDOR_AWAY, VENDOR_RATE_LIMITED, VENDOR_REFUSES_KEY

QUEUES = ("SQS_QUEUE_URL", "SQS_PRIORITY_QUEUE_URL")
RIGHTS = "sqs:ReceiveMessage, sqs:DeleteMessage, sqs:ChangeMessageVisibility, sqs:SendMessage, sqs:GetQueueAttributes"
REACH = "Allow this machine to reach SQS, or correct SQS_REGION and SQS_ENDPOINT_URL."
REMEDIES = {
    "SQS_NO_QUEUE": ("is no queue that is there", "Correct it, or SQS_REGION."),
    VENDOR_REFUSES_KEY: ("refuses the key, or there is none", f"Let the role or the key do {RIGHTS}."),
    VENDOR_RATE_LIMITED: ("has had too many calls", "Run doctor again in a minute."),
    VENDOR_AWAY: ("has failed again and again; calls are held back", "Wait, or look at AWS' health page."),
    "VENDOR_UNAVAILABLE": ("has a fault of its own", "Wait, or look at AWS' health page."),
    "VENDOR_REFUSED": ("refuses the request", "Look whether it is the address of a queue of SQS."),
}
# No statute's id begins with a dot.
PREFIXES, PROBE, CONTENT = ("normalized", "chunks", "embeddings", "failed"), ".doctor", b"written by manage.py doctor"
WRITE = (
    "Let the key do s3:PutObject, s3:GetObject, s3:DeleteObject below normalized/, chunks/, embeddings/ and failed/."
)
READ = "Let the key do s3:GetObject below raw/, and s3:ListBucket: without it a missing file looks like a refusal."
MISSING = f"STATUTES_BUCKET: {s3_error_messages.NO_BUCKET}."
LONG_WAIT = timedelta(minutes=5)
SAMPLED_DEAD_LETTERS = 50  # in the seconds that a check has


def check_queues() -> Iterator[Finding]:
    if not settings.SQS_QUEUE_URL:
        yield skipped("SQS_QUEUE_URL is not set")
        return
    names_by_dead_letters: dict[str, list[str]] = {}  # queues may share them
    for name in QUEUES:
        if url := getattr(settings, name):
            yield from _check_queue(name, url, names_by_dead_letters)
    for dead_url, names in names_by_dead_letters.items():
        yield from _check_dead_letters(dead_url, names)
    consumers = Consumer.objects.filter(ALIVE)
    if not (count := consumers.count()):
        yield error("No consumer is alive: no message is worked on.", "Start one: manage.py consume_sqs")
        return
    waiting = consumers.filter(state=Consumer.State.WAIT, changed_at__lt=Now() - LONG_WAIT)
    for consumer in waiting.order_by("name")[:3]:
        yield warning(f"The consumer {consumer.name} has waited for minutes.", "Its log says for what, with a code.")
    yield note(f"({count} {'consumer' if count == 1 else 'consumers'} alive)")


def _check_queue(name: str, url: str, names_by_dead_letters: dict[str, list[str]]) -> Iterator[Finding]:
    try:
        attributes = sqs.queue_attributes(url)
        yield from _check_redrive_policy(name, attributes.get("RedrivePolicy"))
        if dead_url := dead_letters.dead_letter_queue_url(url):
            names_by_dead_letters.setdefault(dead_url, []).append(name)
        yield from _check_rights(name, url)
    except (Wait, StageFailure) as failure:
        yield _explain_failure(name, failure)
    else:
        waiting = attributes.get("ApproximateNumberOfMessages", "0")
        yield note(f"({name}: {waiting} waiting, {attributes.get('ApproximateNumberOfMessagesNotVisible', '0')} held)")


def _explain_failure(name: str, failure: Wait | StageFailure) -> Finding:
    code = str(failure.reason if isinstance(failure, Wait) else failure.code)
    message, remedy = REMEDIES.get(code, (f"does not answer ({code})", REACH))
    return error(f"{name} {message}.", remedy)


def _check_redrive_policy(name: str, policy: str | None) -> Iterator[Finding]:
    if not policy:
        yield warning(
            f"{name} has no dead-letter queue: a message that always fails comes back until it expires.",
            "Give the queue a redrive policy with maxReceiveCount 3 to 5.",
        )
        return
    receives = int(json.loads(policy)["maxReceiveCount"])
    if receives < dead_letters.MIN_RECEIVES:
        yield error(f"maxReceiveCount of {name} is {receives}: no consumer starts.", "Set it to 3, 4 or 5.")
    elif receives < dead_letters.USUAL_RECEIVES:
        yield warning(f"maxReceiveCount of {name} is {receives}: one failure is half of it.", "Set it to 3, 4 or 5.")


def _check_dead_letters(dead_url: str, names: list[str]) -> Iterator[Finding]:
    """Count the dead letters, and receive some to see which can be redriven; these are visible again at once."""
    try:
        count = dead_letters.queue_depth(dead_url)
        queue = getattr(settings, names[0])
        sample = dead_letters.receive_dead_letters([queue], most=SAMPLED_DEAD_LETTERS) if count else []
        dead_letters.release_dead_letters(sample)
    except (Wait, StageFailure) as failure:
        yield _explain_failure(f"The dead-letter queue of {names[0]}", failure)
        return
    if count:
        message = "1 message was given up" if count == 1 else f"{count} messages were given up"
        valid = sum(not letter.code for letter in sample)
        sampled = f"Of {len(sample)} looked into, " if len(sample) < count else ""
        counts = f"{sampled}{valid} can be put back (--yes), {len(sample) - valid} cannot."
        yield warning(f"{message} ({' and '.join(names)}).", f"Look at them: manage.py laws redrive. {counts}")


def _check_rights(name: str, url: str) -> Iterator[Finding]:
    """Delete and extend a message that does not exist: AWS checks the right before the receipt."""
    message = sqs.ReceivedMessage(url, "doctor", "doctor", "", 0)
    calls = {
        "DeleteMessage": partial(sqs.delete_message, message),
        "ChangeMessageVisibility": partial(sqs.change_visibility, message, 1),
    }
    for right, call in calls.items():
        try:
            with suppress(sqs.MessageLost):
                call()
        except (Wait, StageFailure, *sqs.FAILURES):
            yield error(f"sqs:{right} is refused for {name}.", f"Let the role or the key do {RIGHTS}.")


def check_bucket() -> Iterator[Finding]:
    if not settings.STATUTES_BUCKET:
        yield skipped("STATUTES_BUCKET is not set")
        return
    for prefix in PREFIXES:
        for finding in _probe_prefix(prefix, f"{prefix}/{PROBE}/{uuid4()}"):
            yield finding
            if finding.message == MISSING:
                return
    try:
        s3.head_object(settings.STATUTES_BUCKET, f"raw/{PROBE}/{uuid4()}")
    except FileNotFoundError:
        return
    except OSError as failure:
        reason, remedy = s3_error_messages.explain_s3_error("statutes", failure)
        yield error(f"Files below raw/ of STATUTES_BUCKET cannot be looked at: {reason}.", f"{READ} {remedy}")


def _probe_prefix(prefix: str, key: str) -> Iterator[Finding]:
    bucket = settings.STATUTES_BUCKET
    try:
        s3.put_object(bucket, key, CONTENT)
        content = s3.read_object(bucket, key)
        s3.delete_object(bucket, key)
    except OSError as failure:
        reason, remedy = s3_error_messages.explain_s3_error("statutes", failure)
        if reason == s3_error_messages.NO_BUCKET:
            yield error(MISSING, remedy)
            return
        yield error(f"STATUTES_BUCKET cannot be written and emptied below {prefix}/: {reason}.", f"{WRITE} {remedy}")
        with suppress(OSError):
            s3.delete_object(bucket, key)
        return
    if content != CONTENT:
        yield error(f"STATUTES_BUCKET does not return the bytes written below {prefix}/.", "Look at the store.")
