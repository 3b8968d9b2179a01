"""Print the audit log."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts.audit import log
from accounts.audit.admin_filters import parse_utc_datetime
from accounts.audit.export import CONTENT_TYPES, EntrySelection, export_lines
from accounts.errors import ApiError


class Command(BaseCommand):
    help = "Prints what staff did and read, the oldest first. That it was printed is an entry of its own."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--since", type=when, help="2026-11-01, 2026-11-01T12:00Z, or 7d or 12h ago")
        parser.add_argument("--until", type=when)
        parser.add_argument("--action", help="such as jobs.retry")
        parser.add_argument("--actor-id", type=UUID)
        parser.add_argument("--tenant-id", type=UUID)
        parser.add_argument("--object-id")
        parser.add_argument("--format", choices=sorted(CONTENT_TYPES), default="jsonl")
        parser.add_argument("--reason", default="manage.py audit_log", help="kept in the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        chosen = EntrySelection(**{name: options[name] for name in EntrySelection.__slots__})
        try:
            log.record_action(
                by=None, action="audit.export", reason=options["reason"], object_type="audit_log",
                object_id=options["format"], selection=chosen.as_details,
            )  # fmt: skip
        except ApiError as refused:
            raise CommandError(refused.detail) from refused
        for line in export_lines(chosen, options["format"]):
            self.stdout.write(line, ending="")


def when(said: str) -> datetime:
    unit = {"d": "days", "h": "hours"}.get(said[-1:])
    try:
        found = timezone.now() - timedelta(**{unit: int(said[:-1])}) if unit else parse_utc_datetime(said)
    except (ValueError, OverflowError):
        found = None
    if found is None:
        raise ArgumentTypeError(f"{said!r} is no moment: 2026-11-01, 2026-11-01T12:00Z, 7d or 12h.")
    return found
