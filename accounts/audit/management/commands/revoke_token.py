"""Take an API token back, or all of a user's."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.audit import token_actions
from accounts.errors import ApiError
from accounts.models import ApiToken


class Command(BaseCommand):
    help = "Revokes an API token by its id, or all tokens of a user. The next request with one is refused."

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--token", type=UUID, help="the token's id, as the admin shows it")
        which.add_argument("--user", help="all tokens of the user with this id or e-mail address")
        parser.add_argument("--reason", required=True, help="kept in the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            named = {"pk": options["token"]} if options["token"] else {"user": token_actions.find_user(options["user"])}
            found = ApiToken.objects.filter(**named)
            if options["token"] and not found.exists():
                raise CommandError("There is no such token.")
            revoked = token_actions.revoke_tokens(found, by=None, reason=options["reason"])
        except ApiError as refused:
            raise CommandError(refused.detail) from refused
        self.stdout.write(f"{revoked} revoked.")
