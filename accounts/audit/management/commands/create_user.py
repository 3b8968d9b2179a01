"""Create a tenant with an API token."""

import getpass
import sys
from typing import Any
from uuid import UUID

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.validators import validate_email
from django.db import transaction

from accounts import api_tokens
from accounts.audit import log
from accounts.errors import ApiError
from accounts.models import User
from accounts.system_tenant import SYSTEM_TENANT_ID


class Command(BaseCommand):
    help = (
        "Creates a user and prints an API token, which is shown once. An existing user gets another token."
        " For staff, use create_staff."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--id", type=UUID, help="the user's id elsewhere, e.g. in Supabase")
        parser.add_argument(
            "--password-stdin", action="store_true", help="may sign in: reads a password, or asks for it at a terminal"
        )
        parser.add_argument(
            "--service", action="store_true", help="the token may advance jobs and read for every tenant"
        )
        parser.add_argument("--token-name", default="command line")
        parser.add_argument("--reason", default="manage.py create_user", help="kept in the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        scopes = api_tokens.ALL_SCOPES if options["service"] else api_tokens.PROGRAM_SCOPES
        reason = options["reason"]
        try:
            with transaction.atomic():
                user = self._user(options)
                plain = api_tokens.issue_token(user, name=options["token_name"], scopes=scopes, by=None, reason=reason)
        except ApiError as error:
            raise CommandError(error.detail) from error
        self.stderr.write(f"{user.email} is {user.pk}. The token is shown this once:")
        self.stdout.write(plain)

    def _user(self, options: dict[str, Any]) -> User:
        email = options["email"].strip().lower()
        try:
            validate_email(email)
        except ValidationError as error:
            raise CommandError(f"{email!r} is not an e-mail address.") from error
        if options["id"] == SYSTEM_TENANT_ID:
            raise CommandError(f"{SYSTEM_TENANT_ID} is the system tenant that owns statutes.")
        id_field = {"pk": options["id"]} if options["id"] else {}
        user, is_new = User.objects.get_or_create(email=email, defaults={"username": email, **id_field})
        if options["id"] and user.pk != options["id"]:
            raise CommandError(f"{email} has another id, {user.pk}.")
        if is_new:
            user.set_unusable_password()
            _write_entry("users.add", user, options)
        if options["password_stdin"]:
            password = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
            try:
                validate_password(password, user)
            except ValidationError as error:
                raise CommandError(" ".join(error.messages)) from error
            user.set_password(password)
            _write_entry("users.set_password", user, options)
        user.save()
        return user


def _write_entry(action: str, user: User, options: dict[str, Any]) -> None:
    log.record_action(by=None, action=action, reason=options["reason"], object_type="user", object_id=user.pk)
