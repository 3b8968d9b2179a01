"""Command ``connectors``: list sources, start or stop a sync, plan nightly syncs."""

from argparse import ArgumentTypeError
from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.db.models import OuterRef, Subquery
from rich.console import Console
from rich.table import Table

from embeddings.reindexing import campaign_commands
from integrations.models import ConnectedSource, IngestionJob
from integrations.sync import lifecycle, nightly_schedule

LATEST = 50
MOMENT = "%Y-%m-%d %H:%M"
NEWEST = Subquery(IngestionJob.objects.filter(source=OuterRef("pk")).order_by("-created_at").values("pk")[:1])


class Command(BaseCommand):
    help = "Lists tenants' connected systems, syncs one or stops its sync, plans nightly syncs of all (off by default)."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        listing = verbs.add_parser("list", help=f"the {LATEST} newest, or a tenant's")
        listing.add_argument("--tenant", type=UUID, help="the tenant's id")
        sync = verbs.add_parser("sync", help="sync the changes since the last sync")
        sync.add_argument("source", type=UUID, help="the source's id")
        sync.add_argument("--full", action="store_true", help="fetch everything; delete records gone at the provider")
        campaign_commands.add_reason(sync)
        stop = verbs.add_parser("stop", help="end the sync that is under way; its records stay")
        stop.add_argument("source", type=UUID, help="the source's id")
        campaign_commands.add_reason(stop)
        night = verbs.add_parser("nightly", help="sync the changes of all sources every night")
        when = night.add_mutually_exclusive_group()
        when.add_argument("--at", type=_parse_time, metavar="HH:MM", help="when, UTC")
        when.add_argument("--off", action="store_true", help="delete the plan")

    def handle(self, *args: Any, **options: Any) -> None:
        match options["verb"]:
            case "list":
                self._list(options["tenant"])
            case "sync":
                self._sync(options)
            case "stop":
                source = _get_source(options["source"])
                with campaign_commands.as_command_errors():
                    job = lifecycle.stop_sync(source, by=None, reason=options["reason"])
                self.stdout.write(f"{job.get_kind_display()} sync ended: {job.pk}")
            case _:
                self._nightly(options)

    def _list(self, tenant: UUID | None) -> None:
        table = Table("Source", "Tenant", "Provider", "Status", "Newest sync", "Last synced, UTC", box=None)
        rows = ConnectedSource.objects.filter(**({"user_id": tenant} if tenant else {})).annotate(newest=NEWEST)
        sources = list(rows.order_by("-created_at", "id")[:LATEST])
        jobs = IngestionJob.objects.only("kind", "status", "error_message").in_bulk([each.newest for each in sources])
        for source in sources:
            synced = f"{source.last_synced_at:{MOMENT}}" if source.last_synced_at else ""
            job = jobs.get(source.newest)
            newest = _with_code(f"{job.kind} {job.status}", job.error_message) if job else ""
            status = _with_code(source.status, source.status_message)
            table.add_row(str(source.pk), str(source.user_id), source.provider, status, newest, synced)
        Console(file=self.stdout, width=200).print(table)  # type: ignore[arg-type]

    def _sync(self, options: dict[str, Any]) -> None:
        source = _get_source(options["source"])
        kind = IngestionJob.Kind.FULL if options["full"] else IngestionJob.Kind.DELTA
        with campaign_commands.as_command_errors(), transaction.atomic():
            job = lifecycle.start_sync(source, kind, by="command")
            lifecycle.record_source_action(source, "connectors.sync", by=None, reason=options["reason"], kind=job.kind)
        self.stdout.write(f"{job.get_kind_display()} sync begun: {job.pk}")

    def _nightly(self, options: dict[str, Any]) -> None:
        if options["off"]:
            self.stdout.write(
                "No more nights are planned." if nightly_schedule.cancel_nightly() else "None were planned."
            )
            return
        if options["at"]:
            nightly_schedule.schedule_nightly(options["at"].hour, options["at"].minute)
        next_run = nightly_schedule.next_nightly_run()
        line = f"The next night begins at {next_run:{MOMENT}} UTC." if next_run else "No nights are planned."
        self.stdout.write(line)


def _get_source(source_id: UUID) -> ConnectedSource:
    source = ConnectedSource.objects.filter(pk=source_id).first()
    if source is None:
        raise CommandError("There is no such source.")
    return source


def _with_code(status: str, code: str | None) -> str:
    return f"{status}: {code}" if code else status


def _parse_time(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%H:%M")
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no time of day, as 02:30.") from error
