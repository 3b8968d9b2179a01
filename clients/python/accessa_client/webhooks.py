"""Verification of received webhooks (Standard Webhooks)."""

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import Any

PREFIX = "whsec_"
LEAST_BYTES = 24  # of a key, by Standard Webhooks: with an empty one everybody could sign


class WebhookError(Exception):
    """A webhook that is not signed with the secret, or not within the tolerance of now."""


def verify_webhook(
    body: bytes, headers: Mapping[str, str], secret: str, *, tolerance: float = 300.0, now: float | None = None
) -> dict[str, Any]:
    """Return the event of a webhook: ``type``, ``timestamp`` and ``data``; raise ``WebhookError`` for a forged one.

    ``body`` are the bytes as they were received. ``headers`` may be in upper or lower case. ``tolerance`` is in
    seconds. The same ``webhook-id`` may come twice.
    """
    given = {name.lower(): text for name, text in headers.items()}
    try:
        id, timestamp, signatures = (given[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
        sent_at = int(timestamp)
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (KeyError, ValueError, binascii.Error) as error:
        raise WebhookError("A header is missing or malformed, or the secret is.") from error
    if len(key) < LEAST_BYTES:
        raise WebhookError("The secret is empty or too short.")
    if abs((time.time() if now is None else now) - sent_at) > tolerance:
        raise WebhookError("The webhook is too old, or its clock is ahead.")
    digest = hmac.digest(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256)
    expected = b"v1," + base64.b64encode(digest)
    if not any(hmac.compare_digest(expected, each.encode()) for each in signatures.split()):
        raise WebhookError("The signature does not match.")
    try:
        event = json.loads(body)
    except ValueError as error:
        raise WebhookError("The body is not JSON.") from error
    if not isinstance(event, dict):
        raise WebhookError("The body is no event.")
    return event
