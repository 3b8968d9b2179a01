"""Command for statutes: list, show, reprocess, withdraw; send and redrive messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.text import Truncator
from rich.console import Console
from rich.table import Table

from embeddings.reindexing import campaign_commands
from jobs.models import UploadJob
from jobs.outcomes import StageFailure, Wait
from jobs.safe_errors import safe_error_name
from statutes import staff_actions, withdrawal
from statutes.models import Law, LawVersion, laws_with_error_codes
from statutes.s3 import keys
from statutes.sqs import client, dead_letters
from statutes.sqs.message_schema import PRIORITIES

PAGE_SIZE = 50
MAX_TITLE_CHARS = 60
TIME_FORMAT = "%Y-%m-%d %H:%M"


class Command(BaseCommand):
    help = (
        "Lists statutes, shows one with its versions, reprocesses a version, withdraws a statute, redrives and sends."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        listing = verbs.add_parser("list", help=f"the {PAGE_SIZE} that have changed last")
        listing.add_argument("--status", choices=Law.Status.values)
        show = verbs.add_parser("show", help="a statute, its versions, their jobs, and the keys of its artifacts")
        show.add_argument("law")
        again = verbs.add_parser("reprocess", help="process a version again from its raw file")
        again.add_argument("law")
        again.add_argument("version")
        out = verbs.add_parser("withdraw", help="withdraw a statute from search and the bucket; its raw files stay")
        out.add_argument("law")
        redrive = verbs.add_parser("redrive", help="show the dead letters; with --yes put them back")
        redrive.add_argument("--yes", action="store_true", help="put back those that are valid")
        send = verbs.add_parser("send", help="put a message for a file of the bucket into the queue")
        send.add_argument("key", help="of the file, as raw/federal/2024/ley-iva.pdf")
        send.add_argument("--law", required=True, help="the statute's id")
        send.add_argument("--version", required=True, dest="version", help="of the statute, as 2024-01")
        send.add_argument("--priority", choices=PRIORITIES, default="normal")
        send.add_argument("--bucket", default="", help="another than STATUTES_BUCKET, of STATUTES_RAW_BUCKETS")
        send.add_argument("--force", action="store_true", help="process it again though this version is done")
        send.add_argument("--urgent", action="store_true", help="into SQS_PRIORITY_QUEUE_URL")
        for verb in (again, out, redrive, send):
            campaign_commands.add_reason(verb)

    def handle(self, *args: Any, **options: Any) -> None:
        run = getattr(self, f"_{options['verb']}")
        with campaign_commands.as_command_errors(), _vendor_errors():
            run(options)

    def _list(self, options: dict[str, Any]) -> None:
        table = Table("Statute", "Status", "Version", "Passages", "Language", "Changed, UTC", "Title", box=None)
        rows = laws_with_error_codes().filter(**({"status": options["status"]} if options["status"] else {}))
        for law in rows.order_by("-updated_at", "law_id")[:PAGE_SIZE]:
            changed = f"{law.updated_at:{TIME_FORMAT}}"
            status = _status(law.status, getattr(law, "error_code", None))
            title = Truncator(law.title).chars(MAX_TITLE_CHARS)
            table.add_row(law.pk, status, law.version, str(law.chunk_count), law.language, changed, title)
        self._print(table)

    def _show(self, options: dict[str, Any]) -> None:
        versions = list(LawVersion.objects.filter(law_id=options["law"]).defer("canonical").order_by("-created_at"))
        law = Law.objects.filter(pk=options["law"]).first()
        if law is None and not versions:
            raise CommandError("There is no such statute.")
        if law is not None:
            self.stdout.write(f"{law.pk}: {law.status}, version {law.version}, {law.chunk_count} passages")
        table = Table("Version", "Live", "Status", "Job", "Stage", "Format", "Priority", "Created, UTC", box=None)
        jobs = UploadJob.objects.only("stage", "state").in_bulk([row.job_id for row in versions if row.job_id])
        for row in versions:
            job = jobs.get(row.job_id) if row.job_id else None
            stage = f"{job.stage}, {job.state}" if job else ""
            is_live = law is not None and law.document_id == row.pk
            table.add_row(
                row.version, "yes" if is_live else "", _status(row.status, row.error_code), str(row.job_id or ""),
                stage, row.format or "", row.priority, f"{row.created_at:{TIME_FORMAT}}",
            )  # fmt: skip
        self._print(table)
        if law is not None and law.document_id is not None:
            for key in (keys.manifest(law.pk), keys.law(law.pk), keys.chunks(law.pk), keys.vectors(law.pk)):
                self.stdout.write(key)

    def _reprocess(self, options: dict[str, Any]) -> None:
        job = staff_actions.reprocess(options["law"], options["version"], by=None, reason=options["reason"])
        self.stdout.write(f"Reprocessing: job {job.pk}")

    def _withdraw(self, options: dict[str, Any]) -> None:
        withdrawal.withdraw(options["law"], by=None, reason=options["reason"])
        self.stdout.write("Withdrawn.")

    def _redrive(self, options: dict[str, Any]) -> None:
        urls = client.queue_urls()
        if not urls:
            raise CommandError("Set SQS_QUEUE_URL.")
        letters = dead_letters.receive_dead_letters(urls)
        try:
            for letter in letters:
                about = letter.code or ", ".join(letter.laws) or "no statute"
                self.stdout.write(f"{letter.received.message_id}: {about}")
            if options["yes"]:
                moved = dead_letters.redrive(letters, by=None, reason=options["reason"])
                left = len(letters) - moved
                self.stdout.write(f"{moved} put back" + (f", {left} left: they are invalid." if left else "."))
            else:
                self.stdout.write(dead_letters.summarize(letters))
        finally:
            dead_letters.release_dead_letters([letter for letter in letters if letter.code or not options["yes"]])

    def _send(self, options: dict[str, Any]) -> None:
        fields = {name: options[name] for name in ("key", "law", "version", "priority", "bucket", "force", "urgent")}
        message_id = staff_actions.send_file_message(**fields, by=None, reason=options["reason"])
        self.stdout.write(f"Sent: message {message_id}")

    def _print(self, table: Table) -> None:
        Console(file=self.stdout, width=200).print(table)  # type: ignore[arg-type]


def _status(status: str, code: str | None) -> str:
    return f"{status}: {code}" if code else status


@contextmanager
def _vendor_errors() -> Iterator[None]:
    try:
        yield
    except ImproperlyConfigured as error:
        raise CommandError(str(error)) from error
    except Wait as postponed:
        raise CommandError(f"{postponed.reason}: The queue cannot be used now.") from postponed
    except StageFailure as failure:
        raise CommandError(f"{failure.code}: {failure.detail}") from failure
    except OSError as error:
        raise CommandError(f"STORE_AWAY: {safe_error_name(error)}") from error
