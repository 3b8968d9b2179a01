"""Command reembed: start a campaign that moves tenants to another embedding model."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from embeddings.embedders import registry
from embeddings.reindexing import campaign_commands, services
from embeddings.reindexing.models import Campaign

HOUR = 3600.0


class Command(BaseCommand):
    help = (
        "Embeds all passages with another model, beside the live vectors, and cuts tenant after tenant over when its"
        " canaries find as much as before. Returns at once: the workers do it. See `campaigns` for how far it is."
    )

    def create_parser(self, prog_name: str, subcommand: str, **options: Any) -> CommandParser:
        """Take Django's own --version off: here it is the model's."""
        return super().create_parser(prog_name, subcommand, conflict_handler="resolve", **options)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--model", required=True, help="as embeddings are labelled, e.g. text-embedding-3-small")
        parser.add_argument("--version", required=True, dest="model_version", help="of the model, e.g. 1")
        campaign_commands.add_limits(parser)
        parser.add_argument("--canaries", metavar="FILE", help='JSONL: {"query", "document_id", "page"}')
        parser.add_argument("--keep", type=float, default=24.0, metavar="HOURS", help="how long it can be rolled back")
        share = "how much recall on the canaries a cut-over may cost, 0 to 1"
        parser.add_argument("--tolerance", type=float, default=services.TOLERANCE, metavar="SHARE", help=share)

    def handle(self, *args: Any, **options: Any) -> None:
        name, version = options["model"], options["model_version"]
        target = {"kind": Campaign.Kind.REEMBED, "model": name, "version": version}
        canaries = campaign_commands.read_canaries(options["canaries"])
        keep_seconds, tolerance = options["keep"] * HOUR, options["tolerance"]
        if not campaign_commands.start_campaign(
            self, options, target, canaries=canaries, keep_seconds=keep_seconds, tolerance=tolerance
        ):
            return
        chosen = registry.get_embedder(settings.EMBEDDER)
        if (chosen.model, chosen.version) != (name, version):
            self.stdout.write(f"EMBEDDER is {settings.EMBEDDER!r}: tenants without passages start with {chosen.model}.")
