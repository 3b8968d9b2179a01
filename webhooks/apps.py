from django.apps import AppConfig
from django.core import checks

from webhooks.checks import check_secret_lengths


class WebhooksConfig(AppConfig):
    name = "webhooks"

    def ready(self) -> None:
        checks.register(check_secret_lengths, checks.Tags.security)
