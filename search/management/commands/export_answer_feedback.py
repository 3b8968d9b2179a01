"""Export of a tenant's feedback on answers as a test set."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from accounts.tenants import find_tenant_id
from search.answers.feedback import export_feedback


class Command(BaseCommand):
    help = "Prints what a tenant said of its answers as JSON lines: question, document, pages, answer, right."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", help="e-mail or id; may be left out while there is only one")

    def handle(self, *args: Any, **options: Any) -> None:
        for row in export_feedback(find_tenant_id(options["user"])):
            self.stdout.write(json.dumps(row, ensure_ascii=False))
