"""Settings of the statute worker that cannot be meant, and what no deployment may have of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning

from accessa.checks import bedrock
from embeddings import embedders
from statutes.sqs.limits import BOUNDS

Found = Iterator[CheckMessage]
QUEUES = ("SQS_QUEUE_URL", "SQS_PRIORITY_QUEUE_URL")
ENDPOINTS = ("SQS_ENDPOINT_URL", "STATUTES_S3_ENDPOINT_URL", "TITAN_ENDPOINT_URL")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
SHORTEST_VISIBILITY = 30  # a renewal each 10 s, of which one may fail


def check_statutes() -> Found:
    yield from _addresses()
    yield from _queues()
    yield from _places()
    if settings.STATUTES_EMBEDDER not in ("", *embedders.EMBEDDERS) and "." not in settings.STATUTES_EMBEDDER:
        hint = f"Use one of {', '.join(sorted(embedders.EMBEDDERS))}, or the dotted path of a class; or unset it."
        yield Error(f"There is no embedder {settings.STATUTES_EMBEDDER!r}.", hint=hint, id="accessa.E256")


def _addresses() -> Found:
    for name in (*QUEUES, *ENDPOINTS):
        value = getattr(settings, name)
        if value and not re.match(r"https?://[^/\s?#]", value):
            yield Error(f"{name} is no address.", hint="Set it to scheme://host and what follows.", id="accessa.E251")
    for name in QUEUES:
        if getattr(settings, name).endswith(".fifo"):
            yield Error(
                f"{name} is a FIFO queue: a message that failed would keep all behind it from being worked on.",
                hint="Make a standard queue; the order of versions is kept by their numbers.",
                id="accessa.E252",
            )


def _queues() -> Found:
    queue, urgent = (getattr(settings, name) for name in QUEUES)
    if queue and not settings.STATUTES_BUCKET:
        yield Error("SQS_QUEUE_URL has no bucket for what it brings.", hint="Set STATUTES_BUCKET.", id="accessa.E253")
    if urgent and urgent == queue:
        hint = "Unset SQS_PRIORITY_QUEUE_URL, or set it to another queue."
        yield Error("SQS_PRIORITY_QUEUE_URL is SQS_QUEUE_URL.", hint=hint, id="accessa.E254")
    elif urgent and not queue:
        hint = "Set SQS_QUEUE_URL too, to the queue of what is not urgent."
        yield Error("There is a queue for what is urgent, and none for the rest.", hint=hint, id="accessa.E254")
    for name, (least, most) in BOUNDS.items():
        if not least <= getattr(settings, name) <= most:
            hint = f"Set {name} to {least} to {most}."
            yield Error(f"{name} is not what SQS takes.", hint=hint, id="accessa.E255")
    if queue and settings.SQS_VISIBILITY_SECONDS < SHORTEST_VISIBILITY:
        hint = f"Raise SQS_VISIBILITY_SECONDS to {SHORTEST_VISIBILITY} or more."
        yield Warning("A hiccup of the network gives messages to others while they are worked on.", hint=hint,
                      id="accessa.W257")  # fmt: skip


def _places() -> Found:
    """Artifacts and raw files, which anybody may be let read, beside tenants' files, which nobody may."""
    tenants = (settings.S3_RAW_BUCKET, settings.S3_PARSED_BUCKET)
    is_one_store = settings.STORAGE == "s3" and settings.STATUTES_S3_ENDPOINT_URL == settings.S3_ENDPOINT_URL
    if is_one_store and settings.STATUTES_BUCKET in tenants:
        hint = "Give STATUTES_BUCKET a bucket of its own."
        yield Error("Laws and tenants' files have one bucket.", hint=hint, id="accessa.E258")
    # Whatever the endpoints: one store has many names, and one wrong word would show tenants' files to everybody.
    if settings.STORAGE == "s3" and not set(tenants).isdisjoint(settings.STATUTES_RAW_BUCKETS):
        hint = "Take S3_RAW_BUCKET and S3_PARSED_BUCKET out of STATUTES_RAW_BUCKETS."
        yield Error("A message may make a law of a tenant's file.", hint=hint, id="accessa.E259")


def check_statute_deployment() -> Found:
    if not settings.SQS_QUEUE_URL and not settings.STATUTES_BUCKET:
        return
    for name in (*QUEUES, *ENDPOINTS):
        address = urlsplit(getattr(settings, name) or "")
        if address.scheme == "http" and address.hostname not in LOOPBACK:
            yield Error(
                f"{name} is not https: whoever is in between can read and change what goes there.",
                hint=f"Set {name} to https, or unset it.",
                id="accessa.E114",
            )
    if settings.SQS_QUEUE_URL and not bedrock.has_aws_credentials():
        yield Error(
            "There are no keys of AWS to ask SQS with.",
            hint="Give the machine a role that may use the queue, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
            id="accessa.E115",
        )
