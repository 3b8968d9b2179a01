"""Local folder as a bucket, behind this project's own signed URLs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.core.files.storage import FileSystemStorage

from documents.storage.buckets import INCOMING, Bucket, make_private_folder


class LocalSignedStorage(FileSystemStorage, Bucket):
    """A local folder behind this project's own signed URLs; for one machine."""

    poll_seconds = 60.0  # a fallback: the upload itself wakes its job

    def __init__(self, bucket: str) -> None:
        super().__init__()
        self.alias = bucket

    @property
    def location(self) -> str:  # of now: Django keeps that of the first use
        return os.path.abspath(settings.STORAGE_ROOT / self.alias)

    def put(self, name: str, content: bytes) -> None:
        self.put_file(self.write_incoming([content]), name)

    def put_file(self, file: Path, name: str) -> None:
        """Move an incoming file to its name, atomically and durably."""
        target = Path(self.path(name))
        make_private_folder(target.parent)
        os.replace(file, target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def read(self, name: str) -> bytes:
        return Path(self.path(name)).read_bytes()

    def names(self) -> Iterator[str]:
        """Yield every object's name in order, for the integrity check."""
        root = Path(self.location)
        for folder in sorted(root.glob("*/")):
            for path in sorted(folder.glob("*")):
                if path.is_file() and folder.name != INCOMING:
                    yield str(path.relative_to(root))

    def is_public(self, name: str) -> bool:
        return False  # only the signed URLs reach the folder

    @contextmanager
    def local_file(self, name: str) -> Iterator[Path]:
        yield Path(self.path(name))
