"""Look at the laws of the corpus, let one be done again, take one out, and see to the queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.text import Truncator
from rich.console import Console
from rich.table import Table

from embeddings.reindexing import command_arguments
from jobs.errors import safe_error_name
from jobs.models import UploadJob
from jobs.outcomes import StageFailure, Wait
from statutes import services
from statutes.models import Law, LawVersion
from statutes.queries import laws_with_error_codes
from statutes.s3 import keys
from statutes.sqs import client, dead_letters
from statutes.sqs.messages import PRIORITIES

LATEST = 50
MOST_TITLE_CHARS = 60
MOMENT = "%Y-%m-%d %H:%M"


class Command(BaseCommand):
    help = "Lists laws, shows one with its versions, does a version again, takes a law out, and sees to the queue."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        listing = verbs.add_parser("list", help=f"the {LATEST} that have changed last")
        listing.add_argument("--status", choices=Law.Status.values)
        show = verbs.add_parser("show", help="a law, its versions, their jobs, and where its artifacts lie")
        show.add_argument("law")
        again = verbs.add_parser("reprocess", help="do a version again from its raw file")
        again.add_argument("law")
        again.add_argument("version")
        command_arguments.add_reason(again)
        out = verbs.add_parser("withdraw", help="take a law out of the corpus and the bucket; its raw files stay")
        out.add_argument("law")
        command_arguments.add_reason(out)
        redrive = verbs.add_parser("redrive", help="show the messages that were given up; with --yes put them back")
        redrive.add_argument("--yes", action="store_true", help="put back those that can be worked on")
        command_arguments.add_reason(redrive)
        _add_send(verbs.add_parser("send", help="put a message for a file of the bucket into the queue"))

    def handle(self, *args: Any, **options: Any) -> None:
        act = getattr(self, f"_{options['verb']}")
        with command_arguments.as_command_errors(), _away():
            act(options)

    def _list(self, options: dict[str, Any]) -> None:
        table = Table("Law", "Status", "Version", "Passages", "Language", "Changed, UTC", "Title", box=None)
        rows = laws_with_error_codes().filter(**({"status": options["status"]} if options["status"] else {}))
        for law in rows.order_by("-updated_at", "law_id")[:LATEST]:
            changed = f"{law.updated_at:{MOMENT}}"
            status = _status(law.status, getattr(law, "error_code", None))
            title = Truncator(law.title).chars(MOST_TITLE_CHARS)
            table.add_row(law.pk, status, law.version, str(law.chunk_count), law.language, changed, title)
        self._print(table)

    def _show(self, options: dict[str, Any]) -> None:
        versions = list(LawVersion.objects.filter(law_id=options["law"]).defer("canonical").order_by("-created_at"))
        law = Law.objects.filter(pk=options["law"]).first()
        if law is None and not versions:
            raise CommandError("There is no such law.")
        if law is not None:
            self.stdout.write(f"{law.pk}: {law.status}, version {law.version}, {law.chunk_count} passages")
        table = Table("Version", "Found", "Status", "Job", "Stands at", "Format", "Priority", "Created, UTC", box=None)
        jobs = UploadJob.objects.only("stage", "state").in_bulk([each.job_id for each in versions if each.job_id])
        for each in versions:
            job = jobs.get(each.job_id) if each.job_id else None
            status = _status(each.status, each.error_code)
            stands = f"{job.stage}, {job.state}" if job else ""
            created = f"{each.created_at:{MOMENT}}"
            found = "yes" if law is not None and law.document_id == each.pk else ""
            table.add_row(
                each.version, found, status, str(each.job_id or ""), stands, each.format or "", each.priority, created
            )
        self._print(table)
        if law is not None and law.document_id is not None:
            for key in (keys.manifest(law.pk), keys.law(law.pk), keys.chunks(law.pk), keys.vectors(law.pk)):
                self.stdout.write(key)

    def _reprocess(self, options: dict[str, Any]) -> None:
        job = services.reprocess(options["law"], options["version"], by=None, reason=options["reason"])
        self.stdout.write(f"Begun again: job {job.pk}")

    def _withdraw(self, options: dict[str, Any]) -> None:
        services.withdraw(options["law"], by=None, reason=options["reason"])
        self.stdout.write("Taken out.")

    def _redrive(self, options: dict[str, Any]) -> None:
        urls = client.queue_urls()
        if not urls:
            raise CommandError("Set SQS_QUEUE_URL.")
        found = dead_letters.receive_dead_letters(urls)
        try:
            for each in found:
                about = each.code or ", ".join(each.laws) or "nothing of laws"
                self.stdout.write(f"{each.received.message_id}: {about}")
            if options["yes"]:
                moved = dead_letters.redrive(found, by=None, reason=options["reason"])
                left = len(found) - moved
                self.stdout.write(f"{moved} put back" + (f", {left} left: nobody could work on them." if left else "."))
            else:
                self.stdout.write(dead_letters.summarize(found))
        finally:
            dead_letters.release_dead_letters([each for each in found if each.code or not options["yes"]])

    def _send(self, options: dict[str, Any]) -> None:
        asked = {name: options[name] for name in ("key", "law", "version", "priority", "bucket", "force", "urgent")}
        sent = services.send_file_message(**asked, by=None, reason=options["reason"])
        self.stdout.write(f"Sent: message {sent}")

    def _print(self, table: Table) -> None:
        Console(file=self.stdout, width=200).print(table)  # type: ignore[arg-type]


def _status(status: str, code: str | None) -> str:
    return f"{status}: {code}" if code else status


def _add_send(parser: CommandParser) -> None:
    parser.add_argument("key", help="of the file, as raw/federal/2024/ley-iva.pdf")
    parser.add_argument("--law", required=True, help="the law's id")
    parser.add_argument("--version", required=True, dest="version", help="of the law, as 2024-01")
    parser.add_argument("--priority", choices=PRIORITIES, default="normal")
    parser.add_argument("--bucket", default="", help="another than STATUTES_BUCKET, of STATUTES_RAW_BUCKETS")
    parser.add_argument("--force", action="store_true", help="do it again though this version is there")
    parser.add_argument("--urgent", action="store_true", help="into SQS_PRIORITY_QUEUE_URL")
    command_arguments.add_reason(parser)


@contextmanager
def _away() -> Iterator[None]:
    """Say what is away as a sentence with its code."""
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
