"""Print the audit log."""

from argparse import ArgumentTypeError
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts.admin_base import parse_utc_datetime
from accounts.audit import log
from accounts.audit.export import CONTENT_TYPES, EntrySelection, export_lines
from accounts.errors import ApiError


class Command(BaseCommand):
    help = "Prints what staff did and read, the oldest first. Printing it writes an entry too."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--since", type=parse_time, help="2026-11-01, 2026-11-01T12:00Z, or 7d or 12h ago")
        parser.add_argument("--until", type=parse_time)
        parser.add_argument("--action", help="such as jobs.retry")
        parser.add_argument("--actor-id", type=UUID)
        parser.add_argument("--tenant-id", type=UUID)
        parser.add_argument("--object-id")
        parser.add_argument("--format", choices=sorted(CONTENT_TYPES), default="jsonl")
        parser.add_argument("--reason", default="manage.py audit_log", help="kept in the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        selection = EntrySelection(**{name: options[name] for name in EntrySelection.__slots__})
        try:
            log.record_action(
                by=None, action="audit.export", reason=options["reason"], object_type="audit_log",
                object_id=options["format"], selection=selection.as_details,
            )  # fmt: skip
        except ApiError as error:
            raise CommandError(error.detail) from error
        for line in export_lines(selection, options["format"]):
            self.stdout.write(line, ending="")


def parse_time(text: str) -> datetime:
    unit = {"d": "days", "h": "hours"}.get(text[-1:])
    try:
        moment = timezone.now() - timedelta(**{unit: int(text[:-1])}) if unit else parse_utc_datetime(text)
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        raise ArgumentTypeError(f"{text!r} is not a time: 2026-11-01, 2026-11-01T12:00Z, 7d or 12h.")
    return moment
