"""Command ``replay_ingestion``: put archived messages back into the queue."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.errors import ApiError
from integrations.sync import lifecycle


class Command(BaseCommand):
    help = "Puts archived messages back into the ingestion queue; their syncs continue where they stopped."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("messages", nargs="*", type=int, metavar="MSG_ID")
        parser.add_argument("--all", action="store_true", help="every archived message")
        parser.add_argument("--reason", default="replayed", help="kept in the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        msg_ids = lifecycle.archived_message_ids() if options["all"] else options["messages"]
        if not msg_ids and not options["all"]:
            raise CommandError("Name messages, or say --all.")
        count = 0
        for msg_id, outcome in lifecycle.replay_messages(msg_ids, by=None, reason=options["reason"]).items():
            if isinstance(outcome, ApiError):
                self.stdout.write(f"{msg_id}  {outcome.code}: {outcome.detail}")
            else:
                self.stdout.write(f"{msg_id} -> {outcome}")
                count += 1
        self.stdout.write(f"{count} replayed.")
        if count < len(msg_ids) and not options["all"]:
            raise CommandError(f"{len(msg_ids) - count} of {len(msg_ids)} messages were refused.")
