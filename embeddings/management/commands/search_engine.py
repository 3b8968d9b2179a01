"""Command search_engine: the state of the search engine, its rebuilding, and its comparison with the rows."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from embeddings.search_engine import maintenance
from embeddings.search_engine.entries import EngineUnavailable, load_engine
from outbox import search_feed
from vendors import tenant_argument

SHOWN = 20  # documents


class Command(BaseCommand):
    help = (
        "Shows the search engine's state, lets all be sent to it again, compares it with the database, or empties it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=("status", "rebuild", "verify", "drop"))
        parser.add_argument("--tenant", help="this one only, by id or e-mail address")

    def handle(self, *, action: str, tenant: str | None, **options: Any) -> None:
        if not search_feed.is_enabled():
            raise CommandError("There is no search engine: SEARCH_ENGINE is postgres.")
        user_id = tenant_argument.parse_tenant(tenant) if tenant else None
        try:
            if action == "rebuild":
                count = maintenance.rebuild(user_id)
                self.stdout.write(f"{count} documents will be sent; PostgreSQL searches those that are not sent yet.")
            elif action == "drop":
                if user_id:
                    raise CommandError("All is dropped, not one tenant's.")
                load_engine().drop_collection()
                self.stdout.write("The engine has nothing any more: PostgreSQL answers searches.")
            elif action == "verify":
                self._report(maintenance.verify(user_id))
            else:
                entries = load_engine().count_entries(user_id)
                self.stdout.write(f"The engine answers and has {entries} entries.")
        except EngineUnavailable as error:
            raise CommandError(
                f"The engine does not answer, or was never built ({error}): PostgreSQL answers searches."
                " `search_engine rebuild` builds it."
            ) from None
        finally:
            messages, seconds = search_feed.backlog()
            self.stdout.write(f"{messages} changes are not sent yet, the oldest for {seconds:.0f} s.")

    def _report(self, found: maintenance.Verification) -> None:
        for document_id in sorted({*found.missing, *found.stale})[:SHOWN]:
            missing, stale = found.missing[document_id], found.stale[document_id]
            self.stdout.write(f"{document_id}: {missing} missing, {stale} stale")
        self.stdout.write(
            f"{found.entries} entries compared: {found.missing.total()} missing, {found.stale.total()} stale, "
            f"{found.orphans} of tenants that are gone."
        )
        if not found.is_clean:
            raise CommandError("The engine differs from the database. `search_engine rebuild` mends it.")
