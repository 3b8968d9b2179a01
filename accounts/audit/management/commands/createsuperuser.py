"""`manage.py createsuperuser`: asks for the e-mail address and a password only."""

import getpass
import os
import sys
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.validators import validate_email

from accounts.models import User


class Command(BaseCommand):
    help = "Create a superuser. In the place of Django's command: the e-mail address is the name."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--email", help="default: it is asked for")
        parser.add_argument(
            "--noinput", "--no-input", action="store_false", dest="interactive",
            help="ask nothing: --email, and DJANGO_SUPERUSER_PASSWORD, without which nobody can sign in by password",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        is_interactive = options["interactive"]
        email = (options["email"] or (input("E-mail address: ") if is_interactive else "")).strip().lower()
        try:
            validate_email(email)
        except ValidationError as error:
            raise CommandError(f"{email!r} is not an e-mail address.") from error
        if User.objects.filter(email=email).exists():
            raise CommandError(f"{email} has an account already: create_staff, or the console, gives it permissions.")
        password = _ask_password() if is_interactive else os.environ.get("DJANGO_SUPERUSER_PASSWORD")
        if password is not None:
            try:
                validate_password(password, User(email=email, username=email))
            except ValidationError as error:
                raise CommandError(" ".join(error.messages)) from error
        User.objects.create_superuser(username=email, email=email, password=password)
        self.stdout.write(f"{email} is a superuser.")


def _ask_password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    password = getpass.getpass()
    if password != getpass.getpass("Again: "):
        raise CommandError("The passwords differ.")
    return password
