"""What the commands have in common: whom they mean, what they price, why, and a refusal as a sentence."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from accounts.audit import log
from accounts.errors import ApiError
from embeddings.reindexing.cost_estimates import Estimate
from embeddings.reindexing.models import Campaign
from embeddings.reindexing.targets import MOST_CENTS
from vendors import tenant_argument

BY_COMMAND = "by command"


@contextmanager
def as_command_errors() -> Iterator[None]:
    """Say a refusal as a command does, its code first."""
    try:
        yield
    except ApiError as refused:
        raise CommandError(f"{refused.code}: {refused.detail}") from refused


def add_limits(parser: CommandParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what it takes: tokens, money, hours")
    parser.add_argument(
        "--budget", type=parse_cents, metavar="CENTS", help="pause when so much is spent; default: no limit"
    )
    parser.add_argument(
        "--tenant",
        action="append",
        metavar="TENANT",
        help="a UUID, an e-mail or laws, repeatable; default: all, but the pinned and the laws",
    )
    add_reason(parser)


def add_reason(parser: CommandParser) -> None:
    parser.add_argument("--reason", default=BY_COMMAND, help="kept in the audit log")


def record_audit(verb: str, campaign: Campaign, reason: str, **details: Any) -> None:
    """Leave the audit entry of what a command did to a campaign; call it in the same transaction."""
    log.record_action(
        by=None, action=f"campaigns.{verb}", reason=reason, object_type="campaign", object_id=campaign.pk, **details
    )


def parse_cents(text: str) -> Decimal:
    try:
        found = Decimal(text)
    except InvalidOperation as error:
        raise ArgumentTypeError(f"{text!r} is not a number of cents.") from error
    if not found.is_finite() or not 0 <= found <= MOST_CENTS:
        raise ArgumentTypeError(f"A budget is 0 to {MOST_CENTS} cents.")
    return found


def parse_tenants(given: Sequence[str] | None) -> list[UUID] | None:
    return [tenant_argument.parse_tenant(each) for each in given] if given else None


def read_canaries(path: str | None) -> list[dict[str, Any]] | None:
    """Read one JSON object a line."""
    if path is None:
        return None
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"The canaries in {path} cannot be read: {type(error).__name__}.") from error
    found = []
    for at, line in enumerate(lines, start=1):
        try:
            found += [json.loads(line)] if line.strip() else []
        except (ValueError, RecursionError) as error:
            raise CommandError(f"Line {at} of {path} is not JSON.") from error
    return found


def format_estimate(found: Estimate) -> str:
    return (
        f"{found.tenants} tenants, {found.documents:,} documents, {found.passages:,} passages.\n"
        f"{found.tokens:,} tokens, of which about {found.reused_tokens:,} are known already.\n"
        f"About {found.cents:.6f} cents, canaries included, and about {found.hours:.2f} hours."
    )


def format_started(campaign: Campaign) -> str:
    return (
        f"Campaign {campaign.pk} has begun. The workers do it when they have nothing else to do;"
        " without any that run, nothing moves.\n"
        f"How far it is: manage.py campaigns {campaign.pk}"
    )


def setting_reminder(setting: str, wanted: str) -> str:
    """Say what the operator has to set, so that what is new comes out like what was moved."""
    now = getattr(settings, setting)
    return f"{setting} is {now!r}: what is new goes on being made with it until it says {wanted!r}."
