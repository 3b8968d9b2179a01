"""Buckets: the interface of a store of private objects, with signed URLs of a few minutes, paths and errors."""

import errno
import hashlib
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast
from urllib.parse import quote, urlencode

from django.conf import settings
from django.core import signing
from django.core.files import File
from django.core.files.storage import storages
from django.utils.translation import gettext

from accounts.errors import ApiError, ErrorCode
from documents.error_codes import HASH_MISMATCH, INSUFFICIENT_STORAGE, LENGTH_MISMATCH
from jobs.error_codes import STORAGE_UNAVAILABLE

MIME = "application/pdf"  # of every upload
URI_PREFIX = "storage://"
SIGNING_SALT = "accessa.storage"
INCOMING = ".incoming"


def open_private(path: Path) -> BinaryIO:
    """Create a file that only this process's user can read, whatever the umask."""
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))


def make_private_folder(folder: Path) -> Path:
    """Make STORAGE_ROOT and a folder below it for this process's user alone; ``parents=True`` alone obeys the umask."""
    root = Path(os.path.abspath(settings.STORAGE_ROOT))
    root.parent.mkdir(parents=True, exist_ok=True)
    for path in (*reversed(folder.absolute().parents), folder.absolute()):
        if path.is_relative_to(root):
            path.mkdir(mode=0o700, exist_ok=True)
    return folder


class UploadRejected(Exception):
    """The uploaded bytes are not the declared ones; none of them are stored."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


class Bucket(Protocol):
    """A bucket, with signed URLs of this project. Writes are all or nothing: a reader sees the whole object or none."""

    alias: str
    # Interval, in seconds, at which a job checks whether its bytes are stored.
    poll_seconds: float

    def put(self, name: str, content: bytes) -> None: ...
    def put_file(self, file: Path, name: str) -> None: ...
    def exists(self, name: str) -> bool: ...
    def size(self, name: str) -> int: ...
    def delete(self, name: str) -> None: ...
    def open(self, name: str, mode: str = "rb") -> File: ...  # type: ignore[type-arg]
    def read(self, name: str) -> bytes: ...
    def names(self) -> Iterator[str]: ...
    def local_file(self, name: str) -> AbstractContextManager[Path]: ...
    def is_public(self, name: str) -> bool:
        """Tell whether the object can be read without credentials."""

    def sign_upload(self, name: str, *, length: int, mime: str, sha256: str) -> str:
        """Return a URL that accepts exactly the declared bytes, for ``SIGNED_URL_SECONDS``."""
        return self._signed("PUT", name, length=length, mime=mime, sha256=sha256)

    def sign_download(self, name: str, *, filename: str) -> str:
        return self._signed("GET", name, filename=filename)

    def _signed(self, method: str, name: str, **terms: Any) -> str:
        token = signing.dumps({"method": method, "bucket": self.alias, "name": name, **terms}, salt=SIGNING_SALT)
        return f"{settings.PUBLIC_URL}/storage/{self.alias}/{quote(name)}?{urlencode({'token': token})}"

    def write_incoming(self, pieces: Iterable[bytes], *, length: int | None = None, sha256: str = "") -> Path:
        """Stream bytes to a new file in the incoming folder, which the caller moves or removes.

        Raises ``UploadRejected``, and leaves no file, when the bytes do not match ``length`` and ``sha256``.
        """
        path = self.incoming() / uuid.uuid4().hex
        digest, written = hashlib.sha256(), 0
        try:
            with open_private(path) as file:
                for piece in pieces:
                    written += len(piece)
                    if length is not None and written > length:
                        raise UploadRejected(LENGTH_MISMATCH)
                    if sha256:
                        digest.update(piece)
                    file.write(piece)
                if length is not None and written != length:
                    raise UploadRejected(LENGTH_MISMATCH)
                if sha256 and digest.hexdigest() != sha256:
                    raise UploadRejected(HASH_MISMATCH)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path

    def incoming(self) -> Path:
        """Return the folder of files on their way to or from the store."""
        return make_private_folder(Path(settings.STORAGE_ROOT, self.alias, INCOMING))

    def stale_incoming(self, older: float) -> list[Path]:
        """Return incoming files that were begun more than ``older`` seconds ago: their process was killed."""
        before = time.time() - older
        files = Path(settings.STORAGE_ROOT, self.alias, INCOMING).glob("*")
        return [path for path in files if path.is_file() and path.stat().st_mtime < before]


def storage_error(error: OSError) -> ApiError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ApiError(INSUFFICIENT_STORAGE, retry_after=60)
    return ApiError(STORAGE_UNAVAILABLE, gettext("The file store cannot be reached; try again shortly."), retry_after=5)


def object_uri(bucket: str, user_id: uuid.UUID, document_id: uuid.UUID, extension: str) -> str:
    """Return ``storage://{bucket}/{user_id}/{document_id}.{ext}``, the canonical path (MVP context §0)."""
    return f"{URI_PREFIX}{bucket}/{user_id}/{document_id}.{extension}"


BUCKETS = ("raw", "parsed")


def locate(path: str) -> tuple[Bucket, str]:
    """Return the bucket and the name inside it of a ``storage://`` path."""
    bucket, _, name = path.removeprefix(URI_PREFIX).partition("/")
    return cast(Bucket, storages[bucket]), name
