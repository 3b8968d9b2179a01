"""Command ``rotate_vault``: re-encrypt the token vault under its newest key, so that older ones can be removed."""

from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from accounts import totp
from integrations.oauth import token_vault
from outbox.webhooks import endpoints


class Command(BaseCommand):
    help = (
        "Encrypts every token, webhook secret and authenticator's secret under the newest key of"
        " INTEGRATIONS_VAULT_KEYS, the first one. "
        "May be stopped and run again. With --check: reports whether an older key is still needed, and writes nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true")
        parser.add_argument("--batch", type=int, default=500)

    def handle(self, *args: Any, check: bool, batch: int, **options: Any) -> None:
        newest, older, unknown = endpoints.rotate_keys(write=not check)
        of_users = totp.rotate_keys(write=not check)
        newest, older, unknown = (sum(counts) for counts in zip((newest, older, unknown), of_users, strict=True))
        after: UUID | None = None
        while True:
            counts = token_vault.rotate_keys(after, most=max(batch, 1), write=not check)
            newest, older, unknown = newest + counts.newest, older + counts.older, unknown + counts.unknown
            if counts.last is None:
                break
            after = counts.last
        done = "need an older key" if check else "encrypted anew"
        self.stdout.write(f"{older} secrets {done}, {newest} were under the newest key.")
        if unknown:
            raise CommandError(f"{unknown} secrets are opened by no key. Put back the key that they were written with.")
        if check and older:
            raise CommandError("An older key is still needed: run rotate_vault.")
