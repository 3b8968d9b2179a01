"""Show or set what a tenant may spend a day."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from vendors import money, tenants

MOST = Decimal(10) ** 9


class Command(BaseCommand):
    help = "Shows or sets a tenant's budget, in cents a day (UTC). Jobs that wait for the budget try again at once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", help="the tenant's UUID or e-mail")
        change = parser.add_mutually_exclusive_group()
        change.add_argument("--cents-per-day", help="a budget of its own")
        change.add_argument("--none", action="store_true", help="no limit for this tenant")
        change.add_argument("--default", action="store_true", help="what TENANT_DAILY_CENTS says, as for everybody")

    def handle(self, *args: Any, **options: Any) -> None:
        user_id = tenants.named(options["user"])
        if options["cents_per_day"] is not None:
            money.set_budget(user_id, _cents(options["cents_per_day"]))
        elif options["none"]:
            money.set_budget(user_id, Decimal(0))
        elif options["default"]:
            money.set_budget(user_id, None)
        budget = money.day_budget(user_id)
        if budget is None:
            self.stdout.write(f"{user_id} has no limit and has spent {money.spent_today(user_id):f} cents today.")
            return
        self.stdout.write(
            f"{user_id} may spend {budget:f} cents a day, has spent {money.spent_today(user_id):f} today"
            f" and has {money.left_today(user_id):f} left."
        )


def _cents(text: str) -> Decimal:
    try:
        cents = Decimal(text)
    except InvalidOperation as error:
        raise CommandError(f"{text!r} is not a number of cents.") from error
    if not cents.is_finite() or not money.CENT_FRACTION <= cents <= MOST:
        raise CommandError(f"A budget is more than 0 and at most {MOST} cents a day; say --none for no limit.")
    return cents.quantize(money.CENT_FRACTION)
