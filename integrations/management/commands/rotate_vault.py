"""Command ``rotate_vault``: re-encrypt the token vault under its newest key, so that older ones can be removed."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts.encryption import rotate_column
from accounts.models import User
from integrations.models import VaultToken
from outbox.models import WebhookEndpoint
from outbox.webhooks.endpoints import SECRETS

COLUMNS = (
    (VaultToken.objects.all(), "secret"),
    (User.objects.all(), "totp_secret"),
    *((WebhookEndpoint.objects.all(), name) for name in SECRETS),
)


class Command(BaseCommand):
    help = (
        "Encrypts every token, webhook secret and authenticator's secret under the newest key of"
        " INTEGRATIONS_VAULT_KEYS, the first one. "
        "May be stopped and run again. With --check: reports whether an older key is still needed, and writes nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true")

    def handle(self, *args: Any, check: bool, **options: Any) -> None:
        counts = [rotate_column(rows, column, write=not check) for rows, column in COLUMNS]
        newest, older, unknown = map(sum, zip(*counts, strict=True))
        done = "need an older key" if check else "encrypted anew"
        self.stdout.write(f"{older} secrets {done}, {newest} were under the newest key.")
        if unknown:
            raise CommandError(f"{unknown} secrets are opened by no key. Put back the key that they were written with.")
        if check and older:
            raise CommandError("An older key is still needed: run rotate_vault.")
