"""The file that a tenant uploaded, lent only while it is the one that was declared."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from documents import storage
from documents.models import Document
from jobs.outcomes import Permanent


class ContentMismatch(Permanent):
    """The store holds another file than was declared."""


@contextmanager
def verified_original(document: Document) -> Iterator[Path]:
    """Lend the original as a file on this machine. Raises ``OtherBytes`` when it is not what was declared.

    At every use: an upload URL lasts a few minutes, and where the store cannot check sums its bytes can be replaced.
    """
    bucket, name = storage.locate(document.raw_path)
    with bucket.local_file(name) as path:
        if path.stat().st_size != document.bytes_len:
            if bucket.size(name) == document.bytes_len:  # whole in the store, and cut short on its way here
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            raise ContentMismatch("LENGTH_MISMATCH", "The file is not as long as was declared.")
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != document.file_sha256:
                raise ContentMismatch("HASH_MISMATCH", "The file is not the one whose sha256 was declared.")
        yield path
