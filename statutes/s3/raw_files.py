"""Raw files of statutes: checked and downloaded from their bucket once; from then on our own copy is read."""

import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.conf import settings

from documents.storage import buckets
from documents.storage.s3 import OperationNotAllowed
from jobs.outcomes import Permanent, Retryable
from statutes import error_codes
from statutes.models import LawVersion
from statutes.s3 import client, keys
from statutes.s3.client import Head, ObjectTooLarge

# https://docs.aws.amazon.com/guardduty/latest/ug/monitoring-malware-protection-s3-scans-gdu.html
SCAN_TAG, INFECTED = "GuardDutyMalwareScanStatus", "THREATS_FOUND"
PROBE_NAME = ".accessa-looks"  # a name that no file has


def head_raw_file(version: LawVersion) -> Head:
    """Check an object's size and tags. Raises ``Permanent``, ``Retryable``; ``OSError`` while the bucket is away."""
    if version.bucket not in client.raw_buckets():  # the row may be older than the setting, or come from a manifest
        raise Retryable(error_codes.RAW_BUCKET_CLOSED)
    with _map_errors(version):
        head = client.head_object(version.bucket, version.raw_key)
    if not head.size:
        raise error_codes.statute_failure("EMPTY_FILE")
    if head.size > settings.STATUTES_MAX_BYTES:
        raise error_codes.statute_failure("FILE_TOO_LARGE")
    _check_tags(version, head.tags or {})
    return head


@contextmanager
def _map_errors(version: LawVersion, *, head_succeeded: bool = False) -> Iterator[None]:
    """Leave an error of this file alone, or of a bucket that is not our own, to the queue; wait for all others.

    S3 refuses a file for a missing permission, a KMS key that we may not use (HEAD succeeds, GET is refused), an
    archived file, or one that is being scanned: people or time repair these. So the job is retried, other statutes go
    on, and in the end the message is a dead letter, which can be redriven. ``head_succeeded``: HEAD, which needs the
    same permission as GET, has succeeded a moment ago.
    """
    try:
        yield
    except FileNotFoundError:
        raise Permanent(error_codes.RAW_FILE_MISSING) from None
    except (client.BucketMissing, OperationNotAllowed) as refused:
        if isinstance(refused, OperationNotAllowed):
            # The bucket's policy may be what closes a file that a scanner has tagged.
            with suppress(FileNotFoundError):
                _check_tags(version, client.object_tags(version.bucket, version.raw_key) or {})
        # Other files are looked for no deeper: what a policy closes is there.
        folder, slash, _ = version.raw_key.partition("/")
        folders = sorted({f"{folder}/" if slash else "", keys.RAW})
        if head_succeeded or any(_is_readable(version.bucket, folder) for folder in folders):
            raise Retryable(error_codes.RAW_FILE_CLOSED) from None
        if version.bucket != client.statutes_bucket() and client.is_accessible(client.statutes_bucket()):
            raise Retryable(error_codes.RAW_BUCKET_CLOSED) from None
        raise


def _is_readable(bucket: str, folder: str) -> bool:
    try:
        client.head_object(bucket, f"{folder}{PROBE_NAME}")
    except FileNotFoundError:
        return True
    except (client.BucketMissing, OperationNotAllowed):
        return False
    return True


def _check_tags(version: LawVersion, tags: dict[str, str]) -> None:
    if tags.get(SCAN_TAG) == INFECTED:
        raise Permanent(error_codes.RAW_FILE_INFECTED)
    expected = {"document_id": version.law_id, "version": version.version}
    if any(tags.get(name, text) != text for name, text in expected.items()):
        raise Permanent(error_codes.RAW_FILE_TAGS_DIFFER)


@contextmanager
def download_raw_file(version: LawVersion, head: Head) -> Iterator[tuple[Path, int, str]]:
    """Yield the object of ``head`` as a file, its length and its sha256. Raises as ``head_raw_file``."""
    # Where a periodic task removes what a crash leaves.
    folder = buckets.make_private_folder(Path(settings.STORAGE_ROOT, "raw", buckets.INCOMING))
    path = folder / uuid.uuid4().hex
    try:
        try:
            with _map_errors(version, head_succeeded=True):
                length = client.download_object(version.bucket, version.raw_key, path, etag=head.etag)
        except ObjectTooLarge:
            raise error_codes.statute_failure("FILE_TOO_LARGE") from None
        with path.open("rb") as file:
            os.fsync(file.fileno())
            yield path, length, hashlib.file_digest(file, "sha256").hexdigest()
    finally:
        path.unlink(missing_ok=True)
