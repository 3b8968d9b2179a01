"""Real PDFs stored with document rows and jobs, as an upload leaves them."""

import csv
import hashlib
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid5

from django.conf import settings

from benchmarks import noop_jobs, subprocesses
from documents import deterministic_ids
from documents.models import Document
from documents.services import PIPELINE
from documents.storage import buckets
from jobs.models import UploadJob

SAMPLES = subprocesses.ROOT / "samples"
COLLECTION = (
    subprocesses.ROOT.parent / "shared" / "pdfs"
)  # not in the repository: found where a checkout has it beside it
READABLE = ("plans", "text", "pages", "active_content", "encrypted_openable")
USERS = UUID("6d1f8a52-7c1e-4f5e-9a53-0a8e2c1b7d44")


@dataclass(frozen=True)
class StoredPdf:
    """A PDF in the raw bucket, with its document's row."""

    source: Path
    document_id: UUID
    user_id: UUID
    path: str


def readable_pdfs(extra: Sequence[Path] = ()) -> list[Path]:
    """Return the PDFs that a tenant would expect to become searchable."""
    folders = [SAMPLES, *(COLLECTION / name for name in READABLE if COLLECTION.is_dir()), *extra]
    return [path for folder in folders for path in pdf_paths(folder)]


def textless_pdfs() -> set[Path]:
    """Return the files without a character in the collection's index: scans and blank pages."""
    index = COLLECTION / "INDEX.tsv"
    if not index.exists():
        return set()
    with index.open(newline="") as file:
        return {COLLECTION / row["path"] for row in csv.DictReader(file, delimiter="\t") if row["characters"] == "0"}


def pdf_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.pdf")) if folder.is_dir() else [folder]


def store_pdfs(paths: Iterable[Path], user_id: UUID | None = None) -> list[StoredPdf]:
    """Empty the tables, then put every file under the user's name, or each under that of a new one."""
    noop_jobs.truncate_tables()
    shutil.rmtree(settings.STORAGE_ROOT, ignore_errors=True)
    return [_store(path, user_id or uuid5(USERS, f"{number}")) for number, path in enumerate(paths)]


def _store(path: Path, user_id: UUID) -> StoredPdf:
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    document_id = deterministic_ids.document_id(user_id, sha256)
    uri = buckets.object_uri("raw", user_id, document_id, "pdf")
    bucket, name = buckets.locate(uri)
    bucket.put(name, content)
    Document.objects.create(
        document_id=document_id, user_id=user_id, filename=path.name, mime="application/pdf", bytes_len=len(content),
        file_sha256=sha256, raw_path=uri,
    )  # fmt: skip
    return StoredPdf(path, document_id, user_id, uri)


def create_jobs(stored: Sequence[StoredPdf]) -> None:
    """Create a job for each in one statement, so that none starts before all exist."""
    UploadJob.objects.bulk_create(
        UploadJob(
            pipeline=PIPELINE, user_id=each.user_id, document_id=each.document_id, stage="queued", raw_path=each.path,
            chunks_version="",
        )
        for each in stored
    )  # fmt: skip
