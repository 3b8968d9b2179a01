from django.apps import AppConfig
from django.core import checks

from webhooks.checks import secrets_are_long


class WebhooksConfig(AppConfig):
    name = "webhooks"

    def ready(self) -> None:
        checks.register(secrets_are_long, checks.Tags.security)
