"""Create a member of staff who may sign in to the admin."""

import getpass
import sys
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.validators import validate_email

from accounts.audit import roles, staff_users


class Command(BaseCommand):
    help = (
        "Creates a member of staff. support views, retries jobs and reads tenants' text with a reason; operator also"
        " cancels and discards jobs, runs campaigns, issues and revokes API tokens, and exports the audit log."
        " For everything there is, use createsuperuser."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--group", required=True, choices=sorted(roles.GROUPS))
        parser.add_argument("--password-stdin", action="store_true", help="read the password from the standard input")
        parser.add_argument("--reason", default="manage.py create_staff", help="kept in the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["password_stdin"]:
            password = sys.stdin.readline().rstrip("\r\n")
            if not password:
                raise CommandError("There was no password on the standard input.")
        else:
            password = (getpass.getpass("Password (empty: none): ") or None) if sys.stdin.isatty() else None
        try:
            validate_email(options["email"].strip())
            if password is not None:
                validate_password(password)
            user, is_new, tokens_revoked = staff_users.grant_role(
                options["email"], group=options["group"], by=None, reason=options["reason"], password=password
            )
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{user.email} ({user.pk}) is {options['group']}{', and new' if is_new else ''}.")
        if tokens_revoked:
            self.stdout.write(f"API tokens of before: {tokens_revoked} revoked. New ones: manage.py create_user.")
        if not user.has_usable_password():
            self.stdout.write(f"There is no password yet: manage.py changepassword {user.username}")
