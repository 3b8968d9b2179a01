"""Command that uploads PDF files for a user, as through the API."""

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, cast
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console

from accounts.errors import ApiError
from accounts.tenants import find_tenant_id
from documents import services
from documents.cli_progress import JobStatus, follow_jobs
from documents.models import Document
from documents.storage import buckets
from documents.storage.buckets import MIME
from jobs import telemetry
from jobs.models import UploadJob

READ_BYTES = 1024 * 1024


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
                    names[_upload(user_id, file)] = file.name
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


def _upload(user_id: UUID, file: Path) -> UUID:
    with file.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    declared = services.declare(
        user_id=user_id, filename=file.name, bytes_len=file.stat().st_size, mime=MIME, sha256=sha256
    )
    document = Document.objects.get(pk=declared.document_id)
    bucket, name = buckets.locate(document.raw_path)
    if not bucket.exists(name):
        with file.open("rb") as content:
            services.store_upload(document, iter(partial(content.read, READ_BYTES), b""))
    return declared.job_id


def _job_statuses(job_ids: list[UUID]) -> Iterator[JobStatus]:
    for job in UploadJob.objects.filter(pk__in=job_ids):
        failure = job.last_error.get("code") if job.last_error and job.state == "deadletter" else None
        yield JobStatus(job.pk, job.stage, job.state, job.total_pct, failure)
