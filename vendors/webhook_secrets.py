"""Webhook signing secrets: sent to the vendor with each parse request, tried when a callback is verified."""

import base64

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.crypto import salted_hmac

LEAST_BYTES = 24  # Standard Webhooks: 24 to 64 random bytes
PREFIX = "whsec_"


def webhook_secrets() -> list[str]:
    """Return LLAMAPARSE_WEBHOOK_SECRETS, the newest first: it signs, all of them verify.

    Without any, one is derived from SECRET_KEY, and one from each of its fallbacks.
    Raises ``ImproperlyConfigured`` when one is too short: an empty one would let everybody sign.
    """
    configured: list[str] = settings.LLAMAPARSE_WEBHOOK_SECRETS
    if any(is_weak(secret) for secret in configured):
        raise ImproperlyConfigured(f"LLAMAPARSE_WEBHOOK_SECRETS holds a secret of fewer than {LEAST_BYTES} bytes.")
    if configured:
        return list(configured)
    digests = (
        salted_hmac("vendors.webhook_secrets", "llamaparse", secret=key, algorithm="sha256").digest()
        for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    )
    return [PREFIX + base64.b64encode(digest).decode() for digest in digests]


def is_weak(secret: str) -> bool:
    """Return whether a secret is too short, as LlamaCloud's text or as the bytes of a Standard Webhooks secret."""
    key = standard_key(secret)
    return len(secret.encode() if key is None else key) < LEAST_BYTES


def standard_key(secret: str) -> bytes | None:
    """Return the bytes of ``whsec_<base64>``, or None for a secret of another form: LlamaCloud takes any text."""
    if not secret.startswith(PREFIX):
        return None
    text = secret.removeprefix(PREFIX)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return None
