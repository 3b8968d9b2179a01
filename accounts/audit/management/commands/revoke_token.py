"""Revoke an API token, or all tokens of a user."""

from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts import api_tokens
from accounts.errors import ApiError
from accounts.models import ApiToken


class Command(BaseCommand):
    help = "Revokes an API token by its id, or all tokens of a user. The next request with one is rejected."

    def add_arguments(self, parser: CommandParser) -> None:
        group = parser.add_mutually_exclusive_group(required=True)
        group.add_argument("--token", type=UUID, help="the token's id, as the admin shows it")
        group.add_argument("--user", help="all tokens of the user with this id or e-mail address")
        parser.add_argument("--reason", required=True, help="kept in the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["token"]:
                tokens = ApiToken.objects.filter(pk=options["token"])
                if not tokens.exists():
                    raise CommandError("There is no such token.")
            else:
                tokens = ApiToken.objects.filter(user=api_tokens.find_user(options["user"]))
            revoked = api_tokens.revoke_tokens(tokens, by=None, reason=options["reason"])
        except ApiError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(f"{revoked} revoked.")
