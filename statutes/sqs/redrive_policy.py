"""What becomes of a message that nobody can work on: the queue's redrive policy, read when a consumer starts."""

from __future__ import annotations

import json

import structlog
from django.core.exceptions import ImproperlyConfigured

from statutes.sqs import client

log: structlog.stdlib.BoundLogger = structlog.get_logger("accessa.statutes")
FEWEST, USUAL = 2, 3  # deliveries; spec 004 §3.3: 3 to 5


def most_receives(queue_url: str) -> int | None:
    """Return after how many deliveries the queue moves a message to its dead letters; None without such a queue.

    Raises ``ImproperlyConfigured`` for 1: a worker that stops gives back what it holds, which would be a dead letter.
    Otherwise raises as ``vendors.guard``.
    """
    policy = client.attributes(queue_url).get("RedrivePolicy")
    if not policy:
        log.warning("The queue has no dead-letter queue: what fails comes back until it expires.", code="SQS_NO_DLQ")
        return None
    most = int(json.loads(policy)["maxReceiveCount"])
    if most < FEWEST:
        raise ImproperlyConfigured(
            f"The queue's maxReceiveCount is {most}: a message that a stopping worker gives back would be a dead"
            f" letter. Set it to 3, 4 or 5."
        )
    if most < USUAL:
        log.warning("The queue's maxReceiveCount is low.", code="SQS_FEW_RECEIVES", most=most)
    return most
