"""Base of the campaign commands: arguments, start of a campaign, audit entries, API errors as command errors."""

import json
from argparse import ArgumentTypeError
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from accounts.audit import log
from accounts.errors import ApiError
from embeddings.reindexing import cost_estimates, services
from embeddings.reindexing.cost_estimates import MAX_CENTS, Estimate
from embeddings.reindexing.models import Campaign
from vendors import tenant_argument

BY_COMMAND = "by command"


@contextmanager
def as_command_errors() -> Iterator[None]:
    """Turn an ``ApiError`` into a ``CommandError``, its code first."""
    try:
        yield
    except ApiError as error:
        raise CommandError(f"{error.code}: {error.detail}") from error


def add_limits(parser: CommandParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only estimate tokens, money and hours")
    parser.add_argument(
        "--budget", type=parse_cents, metavar="CENTS", help="pause when so much is spent; default: no limit"
    )
    parser.add_argument(
        "--tenant",
        action="append",
        metavar="TENANT",
        help="a UUID, an e-mail, or laws for the statutes; repeatable; default: all that are not pinned, no statutes",
    )
    add_reason(parser)


def add_reason(parser: CommandParser) -> None:
    parser.add_argument("--reason", default=BY_COMMAND, help="kept in the audit log")


def record_audit(verb: str, campaign: Campaign, reason: str, **details: Any) -> None:
    """Write the audit entry of a command on a campaign; call it in the same transaction."""
    log.record_action(
        by=None, action=f"campaigns.{verb}", reason=reason, object_type="campaign", object_id=campaign.pk, **details
    )


def parse_cents(text: str) -> Decimal:
    try:
        cents = Decimal(text)
    except InvalidOperation as error:
        raise ArgumentTypeError(f"{text!r} is not a number of cents.") from error
    if not cents.is_finite() or not 0 <= cents <= MAX_CENTS:
        raise ArgumentTypeError(f"A budget is 0 to {MAX_CENTS} cents.")
    return cents


def read_canaries(path: str | None) -> list[dict[str, Any]] | None:
    if path is None:
        return None
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"The canaries in {path} cannot be read: {type(error).__name__}.") from error
    canaries = []
    for number, line in enumerate(lines, start=1):
        try:
            canaries += [json.loads(line)] if line.strip() else []
        except (ValueError, RecursionError) as error:
            raise CommandError(f"Line {number} of {path} is not JSON.") from error
    return canaries


def start_campaign(
    command: BaseCommand, options: Mapping[str, Any], target: Mapping[str, Any], *, confirm: bool = False, **limits: Any
) -> bool:
    """Start a campaign as ``add_limits`` says, or print its estimate; return whether it was started.

    With ``confirm`` it prints the estimate first and asks before it spends, unless the option ``yes`` is set.
    """
    user_ids = [tenant_argument.parse_tenant(each) for each in options["tenant"] or ()]
    target = {**target, "user_ids": user_ids or None}
    with as_command_errors():
        if options["dry_run"] or confirm:
            estimate = cost_estimates.estimate(**target)
            command.stdout.write(format_estimate(estimate))
            if options["dry_run"] or (estimate.cents and not options["yes"] and not _is_confirmed()):
                return False
        with transaction.atomic():
            campaign = services.start(**target, **limits, budget_cents=options["budget"], by="command")
            record_audit("start", campaign, options["reason"], target=campaign.target)
    command.stdout.write(
        f"Campaign {campaign.pk} has begun. The workers do it when they have nothing else to do;"
        " without any that run, nothing moves.\n"
        f"How far it is: manage.py campaigns {campaign.pk}"
    )
    return True


def _is_confirmed() -> bool:
    try:
        return input("Start it? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError as error:
        raise CommandError("Nobody is here to be asked: say --yes.") from error


def format_estimate(estimate: Estimate) -> str:
    pages = f", {estimate.pages:,} pages to parse" if estimate.pages else ""
    bound = "At most" if estimate.pages else "About"
    return (
        f"{estimate.tenants} tenants, {estimate.documents:,} documents{pages}, {estimate.passages:,} passages.\n"
        f"{estimate.tokens:,} tokens, of which about {estimate.reused_tokens:,} are known already.\n"
        f"{bound} {estimate.cents:.6f} cents, canaries included, and about {estimate.hours:.2f} hours."
    )
