"""Search from the command line."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.errors import ApiError
from accounts.tenants import find_tenant_id
from embeddings.search.results import strip_marks
from search.services import SOURCES, UPLOADS, search


class Command(BaseCommand):
    help = "Prints what is nearest to a question: passages with their place, records with source, statutes as cited."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("query")
        parser.add_argument("--user", help="e-mail or id; may be left out while there is only one")
        parser.add_argument("-k", type=int, default=5, help="how many passages, records, and passages of statutes")
        parser.add_argument(
            "--sources", default=UPLOADS, help=f"among what, with commas: {', '.join(SOURCES)}; documents are uploads"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        sources = [name.strip() for name in options["sources"].split(",")]
        try:
            user_id = find_tenant_id(options["user"])
            results = search(user_id=user_id, query=options["query"], k=options["k"], sources=sources)
        except ApiError as refused:
            raise CommandError(f"{refused.code}: {refused.detail}") from None
        for number, passage in enumerate(results.passages, 1):
            first, last = passage.pages
            pages = f"page {first}" if first == last else f"pages {first}-{last}"
            place = f"{passage.filename}, {pages}, {' > '.join(passage.headings) or 'no heading'}"
            self._write(number, place, passage.score, passage.snippet_text)
        for number, record in enumerate(results.records, 1):
            self._write(
                number,
                f"{record.source}, {record.title or record.external_id}",
                record.score,
                strip_marks(record.snippet),
            )
        for number, statute in enumerate(results.laws, 1):
            self._write(number, statute.citation, statute.score, statute.snippet_text)
        if not results.passages and not results.records and not results.laws:
            self.stdout.write("Not found in your documents." if results.nearest else "Nothing found.")

    def _write(self, number: int, place: str, score: float, snippet: str) -> None:
        self.stdout.write(f"{number}. {place} ({score:.3f})")
        self.stdout.write(f"   {snippet}\n")
