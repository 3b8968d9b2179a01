"""Command to show the bill: purchases by stage, vendor, document, day or campaign."""

from collections.abc import Callable
from datetime import date
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console
from rich.table import Table

from vendors import ledger, tenant_argument

T = TypeVar("T")


class Command(BaseCommand):
    help = (
        "Shows the bill, campaigns' purchases apart."
        " What is unsettled was reserved for a call whose outcome is not known; it counts as spent."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", help="a tenant's UUID or e-mail, or laws")
        parser.add_argument("--day", help="a UTC day, as 2026-11-22")
        parser.add_argument("--document", help="a document's UUID")
        parser.add_argument("--by", choices=sorted(ledger.GROUPS), default="stage")

    def handle(self, *args: Any, **options: Any) -> None:
        rows = ledger.bill(
            by=options["by"],
            user_id=tenant_argument.parse_tenant(options["user"]) if options["user"] else None,
            day=_parse(date.fromisoformat, options["day"], "a day; write it as 2026-11-22."),
            document_id=_parse(UUID, options["document"], "a document's UUID."),
        )
        if not rows:
            self.stdout.write("Nothing was bought.")
            return
        Console(file=self.stdout, width=110).print(_table(options["by"], rows))  # type: ignore[arg-type]


def _table(by: str, rows: list[dict[str, Any]]) -> Table:
    settled, unsettled = (sum(row[name] for row in rows) for name in ("settled_cents", "unsettled_cents"))
    table = Table(show_footer=True)
    table.add_column(by, "all")
    table.add_column("unit", "")
    for name, total in (
        ("calls", str(sum(row["calls"] for row in rows))),
        ("quantity", ""),  # pages and tokens do not add up
        ("cents", f"{settled:.6f}"),
        ("unsettled cents", f"{unsettled:.6f}"),
    ):
        table.add_column(name, total, justify="right")
    for campaign_id, group in groupby(rows, key=itemgetter("campaign_id")):
        if campaign_id and by != "campaign":
            table.add_section()
            table.add_row(f"campaign {campaign_id}")
        for row in group:
            cents = (f"{row[name]:.6f}" for name in ("settled_cents", "unsettled_cents"))
            table.add_row(
                str(row[ledger.GROUPS[by]] or "-"), row["unit"], str(row["calls"]), f"{row['amount']:,}", *cents
            )
    return table


def _parse(parse: Callable[[str], T], text: str | None, mistake: str) -> T | None:
    try:
        return parse(text) if text else None
    except ValueError as error:
        raise CommandError(f"{text!r} is not {mistake}") from error
