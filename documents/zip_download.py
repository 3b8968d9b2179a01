"""ZIP of a tenant's originals, streamed: no file of it is written, and no more than a piece is in memory."""

import logging
import zipfile
from collections.abc import Iterator, Sequence
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
    pipe, missing = Pipe(), []
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_STORED) as archive:  # type: ignore[call-overload] # needs no seek()
        for document, name in zip(documents, unique_names([each.filename for each in documents]), strict=True):
            try:
                yield from add_original(archive, pipe, document, name)
            except OSError as error:
                log.warning("A file is left out of a download: %s", safe_error_name(error))
                missing.append(name)
        if missing:
            archive.writestr(zipfile.ZipInfo(MISSING_NAME, DATE), MISSING_TEXT + "\n".join(missing) + "\n")
    yield pipe.take()


def add_original(archive: zipfile.ZipFile, pipe: Pipe, document: Document, name: str) -> Iterator[bytes]:
    """Write a document's original to a streamed ZIP, yielding its pieces. Raises ``OSError`` before it writes."""
    bucket, key = buckets.locate(document.raw_path)
    entry = zipfile.ZipInfo(name, DATE)
    # Opened first: a file that cannot be read leaves no entry.
    with bucket.local_file(key) as path, path.open("rb") as file, archive.open(entry, "w", force_zip64=True) as target:
        while piece := file.read(PIECE):
            target.write(piece)
            yield pipe.take()


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
