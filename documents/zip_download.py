"""ZIP of a tenant's originals, streamed: no file of it is written, and no more than a piece is in memory."""

import logging
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath

from accounts.errors import ApiError
from documents.error_codes import DOWNLOAD_TOO_LARGE
from documents.models import Document
from documents.storage import buckets
from jobs.safe_errors import safe_error_name

log = logging.getLogger("accessa.documents")

MAX_BYTES = 500 << 20
PIECE = 256 << 10
MISSING_NAME = "not included.txt"
MISSING_TEXT = "These files could not be read; download them one by one:\n"
DATE = (1980, 1, 1, 0, 0, 0)  # the format's first: when a file was uploaded says nothing about the file


class ZipStream:
    """A ZIP that is written and taken out piece by piece. It ends with a list of the files that could not be read."""

    def __init__(self, compression: int) -> None:
        self._pipe, self._missing = Pipe(), list[str]()
        self.archive = zipfile.ZipFile(self._pipe, "w", compression)  # type: ignore[call-overload] # needs no seek()

    def entry(self, name: str) -> zipfile.ZipInfo:
        entry = zipfile.ZipInfo(name, DATE)
        entry.compress_type = self.archive.compression
        return entry

    def take(self) -> bytes:
        """Return what was written since the last call."""
        return self._pipe.take()

    def add_original(self, document: Document, name: str) -> Iterator[bytes]:
        """Write a document's original, yielding its pieces."""
        bucket, key = buckets.locate(document.raw_path)
        with (
            self.missing_noted(name),
            bucket.local_file(key) as path,
            path.open("rb") as file,
            # Opened last: a file that cannot be read leaves no entry.
            self.archive.open(zipfile.ZipInfo(name, DATE), "w", force_zip64=True) as target,
        ):
            while piece := file.read(PIECE):
                target.write(piece)
                yield self.take()

    @contextmanager
    def missing_noted(self, name: str) -> Iterator[None]:
        """Note the file as missing if the store does not give it."""
        try:
            yield
        except OSError as error:
            log.warning("A file is left out of a download: %s", safe_error_name(error))
            self._missing.append(name)

    def end(self) -> bytes:
        """Write the list of missing files and the directory; return the last piece."""
        if self._missing:
            self.archive.writestr(self.entry(MISSING_NAME), MISSING_TEXT + "\n".join(self._missing) + "\n")
        self.archive.close()
        return self.take()


class Pipe:
    """A file object that can be written only; what was written is taken out and sent."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, piece: bytes) -> int:
        self._pieces.append(bytes(piece))
        return len(piece)

    def flush(self) -> None: ...

    def take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def require_size(documents: Sequence[Document]) -> None:
    """Raise ``ApiError`` if the originals are too large for one download."""
    size = sum(document.bytes_len for document in documents)
    if size > MAX_BYTES:
        detail = f"These files have {size >> 20} MB together; {MAX_BYTES >> 20} MB are the most. Choose fewer."
        raise ApiError(DOWNLOAD_TOO_LARGE, detail)


def stream_zip(documents: Sequence[Document]) -> Iterator[bytes]:
    """Yield the ZIP. A file that was deleted meanwhile, or that the store does not give, is named in a list."""
    stream = ZipStream(zipfile.ZIP_STORED)
    for document, name in zip(documents, unique_names([each.filename for each in documents]), strict=True):
        yield from stream.add_original(document, name)
    yield stream.end()


def unique_names(names: Sequence[str]) -> list[str]:
    """Return file names that differ also without regard to case: ``plan.pdf``, ``plan (2).pdf``."""
    taken: set[str] = set()
    unique = []
    for name in names:
        path, number, candidate = PurePath(name), 1, name
        while candidate.casefold() in taken:
            number += 1
            candidate = f"{path.stem} ({number}){path.suffix}"
        taken.add(candidate.casefold())
        unique.append(candidate)
    return unique
