"""Try archived pages again."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.errors import ApiError
from integrations.sync import replay


class Command(BaseCommand):
    help = "Puts archived messages back into the ingestion queue; their syncs go on where they stood."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("messages", nargs="*", type=int, metavar="MSG_ID")
        parser.add_argument("--all", action="store_true", help="every archived message")
        parser.add_argument("--reason", default="replayed", help="kept with what is done")

    def handle(self, *args: Any, **options: Any) -> None:
        wanted = replay.archived_message_ids() if options["all"] else options["messages"]
        if not wanted and not options["all"]:
            raise CommandError("Name messages, or say --all.")
        replayed = 0
        for archived, became in replay.replay_messages(wanted, by=None, reason=options["reason"]).items():
            if isinstance(became, ApiError):
                self.stdout.write(f"{archived}  {became.code}: {became.detail}")
            else:
                self.stdout.write(f"{archived} -> {became}")
                replayed += 1
        self.stdout.write(f"{replayed} replayed.")
        if replayed < len(wanted) and not options["all"]:
            raise CommandError(f"{len(wanted) - replayed} of {len(wanted)} messages were refused.")
