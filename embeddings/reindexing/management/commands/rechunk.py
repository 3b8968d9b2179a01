"""Command rechunk: start a campaign that splits documents by another chunker."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from embeddings.reindexing import command_arguments, services
from embeddings.reindexing.models import Campaign


class Command(BaseCommand):
    help = (
        "Cuts documents anew from their stored parses; no parse is bought. Each document's passages are replaced in one"
        " transaction. Returns at once: the workers do it. See `campaigns` for how far it is."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--chunker", required=True, metavar="NAME@VERSION")
        command_arguments.add_limits(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        target = {
            "kind": Campaign.Kind.RECHUNK,
            "chunker": options["chunker"],
            "user_ids": command_arguments.parse_tenants(options["tenant"]),
        }
        with command_arguments.as_command_errors():
            if options["dry_run"]:
                self.stdout.write(command_arguments.format_estimate(services.estimate(**target)))
                return
            with transaction.atomic():
                campaign = services.start(**target, budget_cents=options["budget"], by="command")
                command_arguments.record_audit("start", campaign, options["reason"], target=campaign.target)
        self.stdout.write(command_arguments.format_started(campaign))
        if options["chunker"] != settings.CHUNKER:
            self.stdout.write(command_arguments.setting_reminder("CHUNKER", options["chunker"]))
