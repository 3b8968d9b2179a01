"""Upload files from the command line, as a tenant would through the API."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console

from accounts.errors import ApiError
from accounts.models import User
from documents import services, storage
from documents.cli_progress import ENDED, JobStatus, follow_jobs
from documents.models import Document
from documents.validation import MIME
from jobs import log_context
from jobs.models import UploadJob

PIECE = 1024 * 1024


class Command(BaseCommand):
    help = "Uploads PDF files for a user. With --wait, follows them to the end; exits 1 unless all ended well."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("files", nargs="+", type=Path)
        parser.add_argument("--user", help="e-mail or id; may be left out while there is only one")
        parser.add_argument("--wait", action="store_true", help="until each file is searchable or has failed")
        parser.add_argument("--seconds", type=float, default=3600.0, help="how long to wait at most")

    def handle(self, *args: Any, **options: Any) -> None:
        user_id = find_user(options["user"])
        console = Console(file=cast(IO[str], self.stdout))
        names: dict[UUID, str] = {}
        refused = 0
        for file in options["files"]:
            try:
                with log_context.isolated_log_context():  # each file has an id of its own
                    names[_upload(user_id, file)] = file.name
            except (ApiError, storage.UploadRejected, OSError) as error:
                refused += 1
                console.print(f"{file.name}: {_reason(error)}", style="red", markup=False)
        if options["wait"] and names:
            seen = follow_jobs(names, lambda: _look(list(names)), console, seconds=options["seconds"])
            refused += sum(job.state != "done" for job in seen.values()) + len(names) - len(seen)
        if refused:
            raise CommandError(f"{refused} of {len(options['files'])} files did not end well.")


def find_user(named: str | None) -> UUID:
    """Return the user's id by e-mail or id, or the only tenant there is."""
    if named is None:
        users = list(User.objects.filter(is_active=True, is_staff=False)[:2])
        if len(users) != 1:
            raise CommandError("Say whose files they are with --user; `manage.py create_user` makes one.")
        return users[0].pk
    by_email = User.objects.filter(email=named.lower()).first()
    try:
        return by_email.pk if by_email else UUID(named)
    except ValueError:
        raise CommandError(f"There is no user {named!r}.") from None


def _upload(user_id: UUID, file: Path) -> UUID:
    """Declare a file and stream it to its place; return the job's id."""
    with file.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    declared = services.declare(
        user_id=user_id, filename=file.name, bytes_len=file.stat().st_size, mime=MIME, sha256=sha256
    )
    document = Document.objects.get(pk=declared.document_id)
    bucket, name = storage.locate(document.raw_path)
    if not bucket.exists(name):
        services.store_upload(document, _pieces(file))
    return declared.job_id


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as content:
        while piece := content.read(PIECE):
            yield piece


def _look(job_ids: list[UUID]) -> Iterator[JobStatus]:
    for job in UploadJob.objects.filter(pk__in=job_ids):
        failure = job.last_error and job.state in ENDED and job.state != "done" and job.last_error.get("code")
        yield JobStatus(job.pk, job.stage, job.state, job.total_pct, failure or None)


def _reason(error: Exception) -> str:
    match error:
        case ApiError():
            return f"{error.code}: {error.detail}"
        case storage.UploadRejected():
            return error.code
        case OSError():
            return error.strerror or "cannot be read"
    return type(error).__name__
