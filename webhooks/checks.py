"""System check of the webhook secrets' length."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks

from vendors.webhook_secrets import LEAST_BYTES, is_weak


def check_secret_lengths(*, app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Report a short secret by its place in the list, never by its text."""
    return [
        checks.Error(
            f"Secret number {number} of LLAMAPARSE_WEBHOOK_SECRETS has fewer than {LEAST_BYTES} bytes.",
            hint="Make one with: echo whsec_$(openssl rand -base64 32)",
            id="webhooks.E001",
        )
        for number, secret in enumerate(settings.LLAMAPARSE_WEBHOOK_SECRETS, start=1)
        if is_weak(secret)
    ]
