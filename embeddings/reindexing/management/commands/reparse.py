"""Command reparse: start a campaign that parses documents again by the configured parser."""

from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandParser

from embeddings.reindexing import campaign_commands
from embeddings.reindexing.models import Campaign


class Command(BaseCommand):
    help = (
        "Parses the documents that another parser, or another version of it, has parsed. Each document's text and"
        " passages are replaced in one transaction, once the new ones have their vectors; passages whose text stays the"
        " same keep theirs. Prints the price and asks before it spends. Returns at once: the workers do it. See"
        " `campaigns` for how far it is."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--document", action="append", type=UUID, metavar="ID", help="only this one; repeatable")
        parser.add_argument("--yes", action="store_true", help="do not ask before it spends")
        campaign_commands.add_limits(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        target = {"kind": Campaign.Kind.REPARSE, "document_ids": options["document"]}
        campaign_commands.start_campaign(self, options, target, confirm=True)
