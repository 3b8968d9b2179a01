"""Ask a question from the command line."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from documents.management.commands.ingest import chosen_user
from embeddings.search import search
from tenancy.refusals import Refused


class Command(BaseCommand):
    help = "Prints the passages nearest to a question, with document, pages and heading."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("query")
        parser.add_argument("--user", help="e-mail or id; may be left out while there is only one")
        parser.add_argument("-k", type=int, default=5, help="how many passages")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            passages = search(user_id=chosen_user(options["user"]), query=options["query"], k=options["k"])
        except Refused as refused:
            raise CommandError(f"{refused.code}: {refused.detail}") from None
        for number, passage in enumerate(passages, 1):
            first, last = passage.pages
            pages = f"page {first}" if first == last else f"pages {first}-{last}"
            heading = " > ".join(passage.headings) or "no heading"
            self.stdout.write(f"{number}. {passage.filename}, {pages}, {heading} ({passage.score:.3f})")
            self.stdout.write(f"   {' '.join(passage.text.split())[:300]}\n")
        if not passages:
            self.stdout.write("Nothing found.")
