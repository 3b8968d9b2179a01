"""manage.py delete_account: close a tenant's account and delete all that it has stored."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from accounts.api_tokens import find_user
from accounts.errors import ApiError
from outbox.mails.templates import link
from portal.account_deletion import request_deletion


class Command(BaseCommand):
    help = "Deletes an account with all that it has stored. The workers do it; it cannot be undone."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", help="its e-mail address or id")
        parser.add_argument("--reason", required=True, help="kept in the audit log")

    def handle(self, *, user: str, reason: str, **options: Any) -> None:
        try:
            deletion = request_deletion(find_user(user), by=None, reason=reason)
        except ApiError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(f"The account is closed. Progress and certificate: {link('portal:deletion', deletion.pk)}")
