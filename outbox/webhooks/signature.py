"""Signatures of Standard Webhooks (github.com/standard-webhooks/standard-webhooks, spec §signature scheme)."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable

from vendors.webhook_secrets import PREFIX, standard_key

SECRET_BYTES = 32


def generate_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signature_headers(id: str, timestamp: int, body: bytes, signing_secrets: Iterable[str]) -> dict[str, str]:
    """Return the three headers; each secret signs, so that a receiver may know either during a rotation."""
    signed = f"{id}.{timestamp}.".encode() + body
    digests = (hmac.digest(standard_key(each) or b"", signed, hashlib.sha256) for each in signing_secrets)
    signatures = " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
    return {"webhook-id": id, "webhook-timestamp": str(timestamp), "webhook-signature": signatures}
