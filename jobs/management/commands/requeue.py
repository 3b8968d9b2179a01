"""Requeue dead letters."""

from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.errors import ApiError
from jobs import staff_actions
from jobs.choices import CANCELLED_CODES, State
from jobs.models import UploadJob


class Command(BaseCommand):
    help = "Requeues dead letters from their latest valid stage."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("documents", nargs="*", type=UUID, metavar="DOCUMENT_ID")
        parser.add_argument("--all", action="store_true", help="every dead letter")
        parser.add_argument("--code", help="only those that failed with this code")
        parser.add_argument("--reason", default="requeued", help="kept in the audit log")
        parser.add_argument("--dry-run", action="store_true", help="only list the jobs")

    def handle(self, *args: Any, **options: Any) -> None:
        # Nobody would use what the cancelled jobs of a campaign buy.
        dead = UploadJob.objects.filter(state=State.DEADLETTER).exclude(
            campaign_id__isnull=False, last_error__code__in=CANCELLED_CODES
        )
        if options["documents"]:
            dead = dead.filter(document_id__in=options["documents"])
        elif not (options["all"] or options["code"]):
            raise CommandError("Name documents, or say --code or --all.")
        if options["code"]:
            dead = dead.filter(last_error__code=options["code"])
        count = 0
        for job in dead.order_by("created_at").iterator():
            self.stdout.write(f"{job.document_id} {job.stage} {(job.last_error or {}).get('code', '')}")
            try:
                if not options["dry_run"]:
                    staff_actions.retry(job, by=None, reason=options["reason"])
                count += 1
            except ApiError as error:
                self.stdout.write(f"  {error.code}: {error.detail}")
        self.stdout.write(f"{count} requeued." if not options["dry_run"] else f"{count} would be requeued.")
