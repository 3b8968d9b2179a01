"""Command that uploads PDF files for a user, as through the API."""

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console

from accounts.errors import ApiError
from accounts.tenants import find_tenant_id
from documents import services
from documents.cli_progress import JobStatus, follow_jobs
from documents.storage import buckets
from jobs import telemetry
from jobs.models import UploadJob


class Command(BaseCommand):
    help = "Uploads PDF files for a user. With --wait, follows their jobs to the end; exits 1 unless all succeed."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("files", nargs="+", type=Path)
        parser.add_argument("--user", help="e-mail or id; may be left out while there is only one")
        parser.add_argument("--wait", action="store_true", help="wait until each file is searchable or has failed")
        parser.add_argument("--seconds", type=float, default=3600.0, help="how long to wait at most")

    def handle(self, *args: Any, **options: Any) -> None:
        user_id = find_tenant_id(options["user"])
        console = Console(file=cast(IO[str], self.stdout))
        names: dict[UUID, str] = {}
        failed = 0
        for file in options["files"]:
            try:
                with telemetry.isolated_log_context():  # each file has its own correlation id
                    names[services.upload_file(user_id, file).job_id] = file.name
            except (ApiError, buckets.UploadRejected, OSError) as error:
                failed += 1
                match error:
                    case ApiError():
                        reason = f"{error.code}: {error.detail}"
                    case buckets.UploadRejected():
                        reason = error.code
                    case OSError():
                        reason = error.strerror or "cannot be read"
                console.print(f"{file.name}: {reason}", style="red", markup=False)
        if options["wait"] and names:
            jobs = follow_jobs(names, lambda: _job_statuses(list(names)), console, seconds=options["seconds"])
            failed += sum(job.state != "done" for job in jobs.values()) + len(names) - len(jobs)
        if failed:
            raise CommandError(f"{failed} of {len(options['files'])} files did not end well.")


def _job_statuses(job_ids: list[UUID]) -> Iterator[JobStatus]:
    for job in UploadJob.objects.filter(pk__in=job_ids):
        failure = job.last_error.get("code") if job.last_error and job.state == "deadletter" else None
        yield JobStatus(job.pk, job.stage, job.state, job.total_pct, failure)
