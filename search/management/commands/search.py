"""Ask a question from the command line."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.errors import ApiError
from documents.management.commands.ingest import find_user
from embeddings.search import Passage
from embeddings.search.snippets import strip_marks
from statutes.search import SOURCES, UPLOADS, search


class Command(BaseCommand):
    help = "Prints what is nearest to a question: passages with their place, records with their source, laws as cited."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("query")
        parser.add_argument("--user", help="e-mail or id; may be left out while there is only one")
        parser.add_argument("-k", type=int, default=5, help="how many passages, records, and passages of laws")
        parser.add_argument(
            "--sources", default=UPLOADS, help=f"among what, with commas: {', '.join(SOURCES)}; documents are uploads"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        named = [name.strip() for name in options["sources"].split(",")]
        try:
            user_id = find_user(options["user"])
            found = search(user_id=user_id, query=options["query"], k=options["k"], sources=named)
        except ApiError as refused:
            raise CommandError(f"{refused.code}: {refused.detail}") from None
        for number, passage in enumerate(found.passages, 1):
            self._say(number, _place(passage), passage.score, passage.snippet)
        for number, record in enumerate(found.records, 1):
            self._say(number, f"{record.source}, {record.title or record.external_id}", record.score, record.snippet)
        for number, law in enumerate(found.laws, 1):
            self._say(number, law.citation, law.score, law.snippet)
        if not found.passages and not found.records and not found.laws:
            self.stdout.write("Nothing found.")

    def _say(self, number: int, place: str, score: float, snippet: str) -> None:
        self.stdout.write(f"{number}. {place} ({score:.3f})")
        self.stdout.write(f"   {strip_marks(snippet)}\n")


def _place(passage: Passage) -> str:
    first, last = passage.pages
    pages = f"page {first}" if first == last else f"pages {first}-{last}"
    return f"{passage.filename}, {pages}, {' > '.join(passage.headings) or 'no heading'}"
