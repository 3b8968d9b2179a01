"""Make a tenant or a member of staff, with an API token."""

from __future__ import annotations

import getpass
import sys
from typing import Any
from uuid import UUID

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.validators import validate_email

from tenancy import tokens
from tenancy.models import ApiToken, User


class Command(BaseCommand):
    help = "Makes a user and prints an API token; it is shown this once. An existing user gets another token."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--id", type=UUID, help="the user's id elsewhere, e.g. in Supabase")
        parser.add_argument("--staff", action="store_true", help="may sign in to the admin; asks for a password")
        parser.add_argument(
            "--password-stdin", action="store_true", help="may sign in: reads a password, or asks for it at a terminal"
        )
        parser.add_argument("--service", action="store_true", help="the token may advance jobs")
        parser.add_argument("--token-name", default="command line")

    def handle(self, *args: Any, **options: Any) -> None:
        user = self._user(options)
        scope = ApiToken.Scope.SERVICE if options["service"] else ApiToken.Scope.TENANT
        self.stderr.write(f"{user.email} is {user.pk}. The token is shown this once:")
        self.stdout.write(tokens.make(user, name=options["token_name"], scope=scope))

    def _user(self, options: dict[str, Any]) -> User:
        email = options["email"].strip().lower()
        try:
            validate_email(email)
        except ValidationError as error:
            raise CommandError(f"{email!r} is not an e-mail address.") from error
        named = {"pk": options["id"]} if options["id"] else {}
        user, created = User.objects.get_or_create(email=email, defaults={"username": email, **named})
        if options["id"] and user.pk != options["id"]:
            raise CommandError(f"{email} has another id, {user.pk}.")
        if created:
            user.set_unusable_password()
        if options["staff"]:
            user.is_staff = user.is_superuser = True
        if options["staff"] or options["password_stdin"]:
            user.set_password(_password(user))
        user.save()
        return user


def _password(user: User) -> str:
    """Ask for a password, or read it from the standard input when nobody sits there."""
    password = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise CommandError(" ".join(error.messages)) from error
    return password
