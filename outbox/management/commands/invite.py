"""Command to invite an address to make an account."""

from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.validators import validate_email
from django.db import transaction

from accounts.audit import log
from accounts.errors import ApiError
from outbox.mails import account_mails


class Command(BaseCommand):
    help = "Sends an e-mail with a link, by which its reader chooses a password and has an account. Needs SIGN_UP."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--reason", default="manage.py invite", help="kept in the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        if settings.SIGN_UP == "closed":
            raise CommandError("SIGN_UP is closed: set it to invitation or open.")
        try:
            validate_email(options["email"].strip())
            with transaction.atomic():
                invitation = account_mails.invite(options["email"])
                log.record_action(
                    by=None, action="users.invite", reason=options["reason"], object_type="user",
                    object_id=invitation.pk,
                )  # fmt: skip
        except ValidationError as error:
            raise CommandError(f"{options['email']!r} is not an e-mail address.") from error
        except ApiError as error:
            raise CommandError(error.detail) from error
        self.stdout.write(f"{invitation.pk} is invited; the workers send the e-mail.")
