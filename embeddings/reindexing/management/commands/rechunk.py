"""Command rechunk: start a campaign that splits documents by another chunker."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from embeddings.reindexing import campaign_commands
from embeddings.reindexing.models import Campaign


class Command(BaseCommand):
    help = (
        "Splits documents again from their stored parses; no parse is bought. Each document's passages are replaced in"
        " one transaction. Returns at once: the workers do it. See `campaigns` for how far it is."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--chunker", required=True, metavar="NAME@VERSION")
        campaign_commands.add_limits(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        label = options["chunker"]
        target = {"kind": Campaign.Kind.RECHUNK, "chunker": label}
        if campaign_commands.start_campaign(self, options, target) and label != settings.CHUNKER:
            self.stdout.write(f"CHUNKER is {settings.CHUNKER!r}: new documents are made with it until it is {label!r}.")
