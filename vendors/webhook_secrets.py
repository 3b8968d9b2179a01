"""The secrets that callbacks are signed with: given with each order, and tried by whoever is called back."""

from __future__ import annotations

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
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return list(configured) or [_derived(key) for key in keys]


def is_weak(secret: str) -> bool:
    """Whether a secret is too short, as text for LlamaCloud or, for Standard Webhooks, as the bytes it stands for."""
    key = standard_key(secret)
    return len(secret.encode() if key is None else key) < LEAST_BYTES


def standard_key(secret: str) -> bytes | None:
    """Return the bytes behind ``whsec_<base64>``, or None for a secret of another form: LlamaCloud takes any text."""
    if not secret.startswith(PREFIX):
        return None
    text = secret.removeprefix(PREFIX)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return None


def _derived(key: str | bytes) -> str:
    digest = salted_hmac("vendors.webhook_secrets", "llamaparse", secret=key, algorithm="sha256").digest()
    return PREFIX + base64.b64encode(digest).decode()
