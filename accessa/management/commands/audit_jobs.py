"""Check everything that the database and the store promise."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from accessa.integrity import find_violations


class Command(BaseCommand):
    help = "Holds every job against the proof of its stage and looks for orphans; exits 1 when something is wrong."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--deep", action="store_true", help="read all that is stored again as well: slow")

    def handle(self, *args: Any, **options: Any) -> None:
        found = 0
        for finding in find_violations(deep=options["deep"]):
            found += 1
            self.stdout.write(f"{finding.kind} {finding.subject}: {finding.reason}")
        self.stdout.write("All is well." if not found else f"{found} findings.")
        if found:
            raise SystemExit(1)
