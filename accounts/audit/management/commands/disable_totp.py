"""Turn off two-step sign-in of a user who has lost the authenticator app and the recovery codes."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts import api_tokens, totp
from accounts.errors import ApiError


class Command(BaseCommand):
    help = "Turns off two-step sign-in of a user who has lost the app and the recovery codes: the password is enough."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", help="id or e-mail address")
        parser.add_argument("--reason", required=True, help="kept in the audit log: how you know who asks")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            user = api_tokens.find_user(options["user"])
            if not totp.is_on(user):
                raise CommandError("It is off.")
            totp.turn_off(user, by=None, reason=options["reason"])
        except ApiError as error:
            raise CommandError(error.detail) from error
        self.stdout.write("It is off now.")
