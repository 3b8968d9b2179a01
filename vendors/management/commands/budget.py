"""Command to show or set a tenant's daily budget."""

from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from accounts.audit import log
from accounts.errors import ApiError
from vendors import ledger, tenant_argument

MOST_CENTS = Decimal(10) ** 9


class Command(BaseCommand):
    help = "Shows or sets a tenant's budget, in cents a day (UTC). Jobs that wait for the budget try again at once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", help="the tenant's UUID or e-mail, or laws")
        change = parser.add_mutually_exclusive_group()
        change.add_argument("--cents-per-day", help="a budget of its own")
        change.add_argument("--none", action="store_true", help="no limit for this tenant")
        change.add_argument("--default", action="store_true", help="what TENANT_DAILY_CENTS says, as for everybody")
        parser.add_argument("--reason", default="by command", help="kept in the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        user_id = tenant_argument.parse_tenant(options["user"])
        if options["cents_per_day"] is not None:
            _set(user_id, _cents(options["cents_per_day"]), options["reason"])
        elif options["none"]:
            _set(user_id, Decimal(0), options["reason"])
        elif options["default"]:
            _set(user_id, None, options["reason"])
        budget = ledger.day_budget(user_id)
        if budget is None:
            self.stdout.write(f"{user_id} has no limit and has spent {ledger.spent_today(user_id):f} cents today.")
            return
        self.stdout.write(
            f"{user_id} may spend {budget:f} cents a day, has spent {ledger.spent_today(user_id):f} today"
            f" and has {ledger.remaining_today(user_id):f} left."
        )


def _set(user_id: UUID, cents: Decimal | None, reason: str) -> None:
    try:
        with transaction.atomic():
            ledger.set_budget(user_id, cents)
            log.record_action(
                by=None, action="budgets.set", reason=reason, object_type="tenant", object_id=user_id,
                tenant_id=user_id, cents_per_day=None if cents is None else str(cents),
            )  # fmt: skip
    except ApiError as error:
        raise CommandError(error.detail) from error


def _cents(text: str) -> Decimal:
    try:
        cents = Decimal(text)
    except InvalidOperation as error:
        raise CommandError(f"{text!r} is not a number of cents.") from error
    if not cents.is_finite() or not ledger.CENT_FRACTION <= cents <= MOST_CENTS:
        raise CommandError(f"A budget is more than 0 and at most {MOST_CENTS} cents a day; say --none for no limit.")
    return cents.quantize(ledger.CENT_FRACTION)
