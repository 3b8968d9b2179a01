"""Webhook secrets: configured, derived, and too short."""

import base64
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from vendors.webhook_secrets import standard_key, webhook_secrets
from webhooks.checks import check_secret_lengths
from webhooks.tests.signers import FOREIGN, RETIRED, SECRET, LlamaCloudSigner, event_payload, post

SHORT = [
    "",
    "short",
    "x" * 23,
    "whsec_",
    "whsec_" + base64.b64encode(bytes(23)).decode(),
    # Long as a text, but the bytes that it stands for are few.
    "whsec_" + base64.b64encode(b"sixteen bytes ok").decode(),
]


def test_configured_secrets_are_used_as_they_stand_the_newest_first(settings: Any) -> None:
    settings.LLAMAPARSE_WEBHOOK_SECRETS = [SECRET, RETIRED]

    assert webhook_secrets() == [SECRET, RETIRED]


def test_without_any_one_is_derived_that_fits_both_schemes(settings: Any) -> None:
    settings.LLAMAPARSE_WEBHOOK_SECRETS = []

    (secret,) = webhook_secrets()

    assert len(standard_key(secret) or b"") == 32
    assert settings.SECRET_KEY not in secret
    assert webhook_secrets() == [secret]


def test_derived_webhook_secrets_follow_the_secret_key_and_its_fallbacks(settings: Any) -> None:
    settings.LLAMAPARSE_WEBHOOK_SECRETS = []
    (old,) = webhook_secrets()

    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another key of the installation"
    new, *others = webhook_secrets()

    assert new != old
    assert others == [old]


@pytest.mark.parametrize("secret", SHORT)
def test_a_short_secret_is_named_by_its_place_and_never_used(secret: str, settings: Any) -> None:
    settings.LLAMAPARSE_WEBHOOK_SECRETS = [SECRET, secret]

    (message,) = check_secret_lengths(app_configs=None)

    assert message.id == "webhooks.E001"
    assert message.msg == "Secret number 2 of LLAMAPARSE_WEBHOOK_SECRETS has fewer than 24 bytes."
    with pytest.raises(ImproperlyConfigured, match="fewer than 24 bytes"):
        webhook_secrets()
    with pytest.raises(ImproperlyConfigured):
        post(LlamaCloudSigner().send(event_payload(), secret=secret))


@pytest.mark.parametrize("secret", [SECRET, FOREIGN, "x" * 24, SECRET.rstrip("="), "whsec_no base64, but long enough"])
def test_a_long_secret_is_accepted(secret: str, settings: Any) -> None:
    settings.LLAMAPARSE_WEBHOOK_SECRETS = [secret]

    assert check_secret_lengths(app_configs=None) == []
    assert webhook_secrets() == [secret]
