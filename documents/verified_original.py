"""Original of a document as a local file, verified at every use."""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from documents.error_codes import HASH_MISMATCH, LENGTH_MISMATCH
from documents.models import Document
from documents.storage import buckets
from jobs.outcomes import Permanent


class ContentMismatch(Permanent):
    """The store holds another file than the declared one."""


@contextmanager
def verified_original(document: Document) -> Iterator[Path]:
    """Yield the path of the original as a local file. Raises ``ContentMismatch`` when it is not the declared file.

    Verified at every use: an upload URL works for some minutes, and a store that checks no hash accepts other bytes.
    """
    bucket, name = buckets.locate(document.raw_path)
    with bucket.local_file(name) as path:
        if path.stat().st_size != document.bytes_len:
            if bucket.size(name) == document.bytes_len:  # complete in the store, truncated on its way here
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            raise ContentMismatch(LENGTH_MISMATCH)
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != document.file_sha256:
                raise ContentMismatch(HASH_MISMATCH)
        yield path
