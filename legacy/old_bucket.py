"""The old bucket, read-only: a folder, or a bucket of the configured S3."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from django.conf import settings
from django.utils.module_loading import import_string

from accounts.errors import ApiError
from documents.storage.s3 import S3Bucket
from legacy.error_codes import FILE_NOT_DECRYPTED, LEGACY_NOT_CONFIGURED

S3 = "s3://"


class OldBucket(Protocol):
    def names(self) -> Iterator[str]: ...
    def read(self, name: str) -> bytes: ...
    def version(self, name: str) -> str:
        """Return what changes with the object's content, or "" when there is no object."""


class OldFolder:
    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def names(self) -> Iterator[str]:
        for path in sorted(self.root.rglob("*")):
            if path.is_file():
                yield str(path.relative_to(self.root))

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def version(self, name: str) -> str:
        path = (self.root / name).resolve()
        if not (path.is_relative_to(self.root) and path.is_file()):
            return ""
        stat = path.stat()
        return f"{stat.st_size}:{stat.st_mtime_ns}"


class OldS3Bucket(S3Bucket):
    """A bucket beside those of this project, by the same endpoint and keys."""

    def __init__(self, name: str) -> None:
        super().__init__("raw")
        self.bucket_name = name

    def version(self, name: str) -> str:
        return str(self.size(name)) if self.exists(name) else ""


def open_bucket() -> OldBucket:
    """Return the bucket that LEGACY_BUCKET names. Raises ``ApiError("LEGACY_NOT_CONFIGURED")``."""
    location: str = settings.LEGACY_BUCKET
    if location.startswith(S3):
        return OldS3Bucket(location.removeprefix(S3))
    if not location or not Path(location).is_dir():
        raise ApiError(LEGACY_NOT_CONFIGURED, "LEGACY_BUCKET is neither a folder nor s3://name.")
    return OldFolder(Path(location))


def decrypt(content: bytes) -> bytes:
    """Return the bytes as LEGACY_DECRYPT decrypts them. Raises ``ApiError("FILE_NOT_DECRYPTED")``."""
    if not settings.LEGACY_DECRYPT:
        raise ApiError(FILE_NOT_DECRYPTED)
    try:
        return bytes(import_string(settings.LEGACY_DECRYPT)(content))
    except Exception as error:  # of the operator's own function, which may raise anything about one file
        raise ApiError(FILE_NOT_DECRYPTED) from error
