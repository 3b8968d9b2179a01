"""Command legacy: inspect the old system, import it, validate, switch tenants, roll back."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console
from rich.table import Table

from embeddings.reindexing import campaign_commands
from legacy import column_mapping, cutover, inventory, old_bucket, old_database, rollback, services
from legacy.column_mapping import OldMapping
from legacy.models import ImportRun, LegacyDocument, LegacyTenant
from legacy.old_database import OldCatalog
from legacy.plan import Plan
from legacy.report import Report
from legacy.validation import validate
from vendors import tenant_argument

MAPPING = Path("legacy.toml")
MODES = (ImportRun.Mode.REINGEST.value, ImportRun.Mode.ADOPT.value)
MOST_FINDINGS = 50


class Command(BaseCommand):
    help = "Imports users and documents of the system that this one replaces. See docs/legacy.md."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        inspect = verbs.add_parser("inspect", help="count what is there, and write the mapping file to be checked")
        importing = verbs.add_parser(
            "import", help="import documents; what is unchanged since an earlier run is skipped"
        )
        importing.add_argument("--users", action="store_true", help="only the users, which come first")
        importing.add_argument("--dry-run", action="store_true", help="the same walk, and no writes")
        importing.add_argument("--mode", choices=MODES, default=MODES[0], help="process again, or take vectors over")
        check = verbs.add_parser("validate", help="compare the old system with what was imported")
        check.add_argument("--questions", type=int, default=5, help="sampled questions to ask in both systems")
        for verb in (inspect, importing, check):
            verb.add_argument("--mapping", type=Path, default=MAPPING, metavar="FILE")
        for verb in (importing, check):
            verb.add_argument("--report", type=Path, metavar="FILE", help="write the report as JSON")
        cutover = verbs.add_parser("cutover", help="show a tenant's system, or switch it")
        cutover.add_argument("tenant", help="the tenant's UUID or e-mail")
        cutover.add_argument("system", nargs="?", choices=LegacyTenant.System.values)
        verbs.add_parser("runs", help="list the imports")
        back = verbs.add_parser("rollback", help="remove what a run made and nobody has touched since")
        back.add_argument("--run", type=UUID, required=True)
        for verb in (cutover, back):
            campaign_commands.add_reason(verb)

    def handle(self, *args: Any, **options: Any) -> None:
        run = getattr(self, f"_{options['verb']}")
        with campaign_commands.as_command_errors():
            run(options)

    def _inspect(self, options: dict[str, Any]) -> None:
        if options["mapping"].exists():
            raise CommandError(f"{options['mapping']} exists: remove it, or name another with --mapping.")
        with old_database.open_catalog() as old:
            guesses = inventory.guess_mapping(old)
            summary = inventory.take_inventory(old, old_bucket.open_bucket(), guesses)
        table = Table("what", "count")
        for name, count in summary.counts.items():
            table.add_row(f"rows of {name}", f"{count:,}")
        table.add_row("documents without a file", f"{summary.rows_without_file:,}")
        table.add_row("files without a document", f"{summary.keys_without_row:,}")
        table.add_row("users unknown here", f"{summary.unknown_users:,}")
        for pattern, count in summary.key_patterns.most_common(inventory.MOST_PATTERNS):
            table.add_row(f"files like {pattern}", f"{count:,}")
        self._print(table)
        options["mapping"].write_text(column_mapping.render(guesses), encoding="utf-8")
        self.stdout.write(f"Check {options['mapping']}, name a backup in it, and set confirmed = true.")

    def _import(self, options: dict[str, Any]) -> None:
        with _opened(options) as (old, chosen):
            if options["users"]:
                run, counts = services.import_users(old, chosen)
                self.stdout.write(f"Run {run.pk}: {json.dumps(counts, sort_keys=True)}")
                refused = sum(count for name, count in counts.items() if name.isupper())
            else:
                report = self._import_documents(old, chosen, options)
                _write_json(options["report"], report.as_json())
                self._print(report.as_table())
                refused = report.refused
        if refused:
            raise CommandError(f"{refused} are refused.")

    def _import_documents(self, old: OldCatalog, chosen: OldMapping, options: dict[str, Any]) -> Report:
        mode = ImportRun.Mode(options["mode"])
        if mode == ImportRun.Mode.ADOPT and not (chosen.adopt_model and "chunks" in chosen.sections):
            raise CommandError("--mode adopt needs adopt_model and the section chunks in the mapping file.")
        if options["dry_run"]:
            report = Report()
            for verdict in Plan(old, chosen, old_bucket.open_bucket(), mode=mode, sample_vendors=False).verdicts():
                report.add(verdict)
            return report
        run, report = services.import_documents(old, chosen, mode=mode)
        self.stdout.write(f"Run {run.pk}.")
        return report

    def _validate(self, options: dict[str, Any]) -> None:
        with _opened(options) as (old, chosen):
            report = validate(old, chosen, old_bucket.open_bucket(), questions=options["questions"])
        _write_json(options["report"], report.as_json())
        self.stdout.write(f"Old documents: {json.dumps(report.counts, sort_keys=True)}")
        for answer in report.answers:
            self.stdout.write(f"Of the old top ten of {answer['user_id']}, {answer['share']:.0%} are in the new one.")
        for old_id, finding in report.findings[:MOST_FINDINGS]:
            self.stdout.write(f"{old_id}: {finding}")
        call_command("audit_jobs", deep=True, stdout=self.stdout)
        if report.findings:
            raise CommandError(f"{len(report.findings)} findings.")

    def _cutover(self, options: dict[str, Any]) -> None:
        user_id = tenant_argument.parse_tenant(options["tenant"])
        if options["system"]:
            cutover.switch(user_id=user_id, system=options["system"], reason=options["reason"])
        self.stdout.write(f"{user_id}: {cutover.system_of(user_id)}")

    def _runs(self, options: dict[str, Any]) -> None:
        table = Table("run", "mode", "state", "begun, UTC", "documents", "backup")
        for run in ImportRun.objects.order_by("-started_at"):
            count = LegacyDocument.objects.filter(run=run).count()
            table.add_row(str(run.pk), run.mode, run.state, f"{run.started_at:%Y-%m-%d %H:%M}", str(count), run.backup)
        self._print(table)

    def _rollback(self, options: dict[str, Any]) -> None:
        run = ImportRun.objects.filter(pk=options["run"]).first()
        if run is None:
            raise CommandError("There is no such run.")
        counts = rollback.roll_back(run, reason=options["reason"])
        self.stdout.write(json.dumps(counts, sort_keys=True))

    def _print(self, table: Table) -> None:
        Console(file=self.stdout, width=160).print(table)  # type: ignore[arg-type]


@contextmanager
def _opened(options: dict[str, Any]) -> Iterator[tuple[OldCatalog, OldMapping]]:
    chosen = column_mapping.load(options["mapping"])
    with old_database.open_catalog() as old:
        old.require(chosen)
        yield old, chosen


def _write_json(path: Path | None, content: Any) -> None:
    if path is not None:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
