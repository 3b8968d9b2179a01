"""manage.py audit_jobs: run the integrity checks."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from accessa.integrity.violations import find_violations


class Command(BaseCommand):
    help = "Checks every job against the invariant of its stage and finds orphans; exits 1 when something is wrong."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--deep", action="store_true", help="read all that is stored again as well: slow")

    def handle(self, *args: Any, **options: Any) -> None:
        count = 0
        for violation in find_violations(deep=options["deep"]):
            count += 1
            self.stdout.write(f"{violation.kind} {violation.subject}: {violation.reason}")
        self.stdout.write("All is well." if not count else f"{count} findings.")
        if count:
            raise SystemExit(1)
