"""Try dead letters again."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.errors import ApiError
from jobs import staff_actions
from jobs.models import UploadJob
from jobs.states import CANCELLED_CODES, State


class Command(BaseCommand):
    help = "Sends dead-lettered jobs back to the last stage that they had truly reached."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("documents", nargs="*", type=UUID, metavar="DOCUMENT_ID")
        parser.add_argument("--all", action="store_true", help="every dead letter")
        parser.add_argument("--code", help="only those that failed with this code")
        parser.add_argument("--reason", default="requeued", help="kept with what is done")
        parser.add_argument("--dry-run", action="store_true", help="say what would be done")

    def handle(self, *args: Any, **options: Any) -> None:
        # What a campaign let go of when it ended would buy for nobody.
        dead = UploadJob.objects.filter(state=State.DEADLETTER).exclude(
            campaign_id__isnull=False, last_error__code__in=CANCELLED_CODES
        )
        if options["documents"]:
            dead = dead.filter(document_id__in=options["documents"])
        elif not (options["all"] or options["code"]):
            raise CommandError("Name documents, or say --code or --all.")
        if options["code"]:
            dead = dead.filter(last_error__code=options["code"])
        done = 0
        for job in dead.order_by("created_at").iterator():
            done += self._requeue(job, dry=options["dry_run"], reason=options["reason"])
        self.stdout.write(f"{done} requeued." if not options["dry_run"] else f"{done} would be requeued.")

    def _requeue(self, job: UploadJob, *, dry: bool, reason: str) -> bool:
        code = (job.last_error or {}).get("code", "")
        self.stdout.write(f"{job.document_id} {job.stage} {code}")
        if dry:
            return True
        try:
            staff_actions.retry(job, by=None, reason=reason)
        except ApiError as refused:
            self.stdout.write(f"  {refused.code}: {refused.detail}")
            return False
        return True
