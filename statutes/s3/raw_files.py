"""A law's raw file: looked at and fetched from its bucket once; from then on our own copy is what is read."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from documents import storage
from documents.storage.s3 import OperationNotAllowed
from jobs.outcomes import Permanent, Retryable
from statutes.error_codes import (
    RAW_BUCKET_CLOSED,
    RAW_FILE_CLOSED,
    RAW_FILE_INFECTED,
    RAW_FILE_MISSING,
    RAW_FILE_TAGS_DIFFER,
)
from statutes.errors import Unreadable
from statutes.models import LawVersion
from statutes.s3 import client, keys
from statutes.s3.client import Head, ObjectTooLarge

# https://docs.aws.amazon.com/guardduty/latest/ug/monitoring-malware-protection-s3-scans-gdu.html
SCANNED, INFECTED = "GuardDutyMalwareScanStatus", "THREATS_FOUND"
NOBODYS = ".accessa-looks"  # a name that no file has


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file on its way into our own store."""

    path: Path
    length: int
    sha256: str


def head_raw_file(version: LawVersion) -> Head:
    """Check an object's size and tags. Raises ``Permanent``, ``Retryable``; ``OSError`` while the bucket is away."""
    if version.bucket not in client.raw_buckets():  # the row may be older than the setting, or told by a manifest
        raise _closed()
    with _blamed(version):
        head = client.head_object(version.bucket, version.raw_key)
    if not head.size:
        raise Unreadable("EMPTY_FILE")
    if head.size > settings.STATUTES_MAX_BYTES:
        raise Unreadable("FILE_TOO_LARGE")
    _check_tags(version, head.tags or {})
    return head


@contextmanager
def _blamed(version: LawVersion, *, is_told_of: bool = False) -> Iterator[None]:
    """Leave what is refused of one file, or of a bucket that is not our own, to the queue; wait for all else.

    Refused is a right that is missing, a key of KMS' that we may not use (S3 tells of such a file, and does not give
    it), an archived file, or one that a scanner is at: what people or time mend. So its law is tried again, the others
    go on, and in the end the message is a dead letter, which can be put back. ``is_told_of``: HEAD, for which the same
    right is needed as for GET, was answered a moment ago.
    """
    try:
        yield
    except FileNotFoundError:
        raise Permanent(RAW_FILE_MISSING, "There is no file under the key that the message names.") from None
    except (client.BucketMissing, OperationNotAllowed) as refused:
        if isinstance(refused, OperationNotAllowed):
            _check_tags(version, _tags_of_closed(version))
        if is_told_of or any(_are_others_open(version.bucket, folder) for folder in _folders(version.raw_key)):
            raise Retryable(RAW_FILE_CLOSED) from None
        if version.bucket != client.statutes_bucket() and client.is_accessible(client.statutes_bucket()):
            raise _closed() from None
        raise


def _tags_of_closed(version: LawVersion) -> dict[str, str]:
    """Return the tags of a file that is refused: a bucket's policy may be what closes one that a scanner has tagged."""
    with suppress(FileNotFoundError):
        return client.object_tags(version.bucket, version.raw_key) or {}
    return {}


def _folders(key: str) -> list[str]:
    """Return where to look whether other files are open: not deeper, for what a policy closes lies there."""
    folder, slash, _ = key.partition("/")
    return sorted({f"{folder}/" if slash else "", keys.RAW})


def _are_others_open(bucket: str, folder: str) -> bool:
    """Tell whether we may look at other files of a folder."""
    try:
        client.head_object(bucket, f"{folder}{NOBODYS}")
    except FileNotFoundError:
        return True
    except (client.BucketMissing, OperationNotAllowed):
        return False
    return True


def _closed() -> Retryable:
    return Retryable(RAW_BUCKET_CLOSED)


def _check_tags(version: LawVersion, tags: dict[str, str]) -> None:
    """Refuse a file that a scanner has found infected, or whose tags say that it is of another law."""
    if tags.get(SCANNED) == INFECTED:
        raise Permanent(RAW_FILE_INFECTED, "The bucket's scanner has found a threat in the file.")
    said = {"document_id": version.law_id, "version": version.version}
    if any(tags.get(name, value) != value for name, value in said.items()):
        raise Permanent(RAW_FILE_TAGS_DIFFER)


@contextmanager
def download_raw_file(version: LawVersion, head: Head) -> Iterator[RawFile]:
    """Lend the object that was looked at as a file that our store can place. Raises as ``look``."""
    folder = Path(settings.STORAGE_ROOT, "raw", storage.INCOMING)  # where the sweep finds what a crash leaves
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / uuid.uuid4().hex
    try:
        length = _downloaded(version, head, path)
        with path.open("rb") as file:
            os.fsync(file.fileno())
            yield RawFile(path, length, hashlib.file_digest(file, "sha256").hexdigest())
    finally:
        path.unlink(missing_ok=True)


def _downloaded(version: LawVersion, head: Head, path: Path) -> int:
    try:
        with _blamed(version, is_told_of=True):
            return client.download_object(version.bucket, version.raw_key, path, etag=head.etag)
    except ObjectTooLarge:
        raise Unreadable("FILE_TOO_LARGE") from None
