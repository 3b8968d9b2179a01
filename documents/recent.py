"""Originals fetched from a far store a moment ago: who looks at one page will turn to the next.

For every process on this machine, under ``STORAGE_ROOT``; gone with the document, and in any case after some minutes.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.conf import settings

from documents import originals, storage
from documents.models import Document

FOLDER = ".recent"
KEPT_SECONDS = 300.0
KEPT_BYTES = 256 << 20
_waiting = threading.Lock()  # held while a sweep is on its way


@contextmanager
def lent(document: Document) -> Iterator[Path]:
    """Lend the original as ``originals.lent`` does, without fetching it again for every page."""
    if isinstance(storage.located(document.raw_path)[0], storage.LocalSignedStorage):
        with originals.lent(document) as path:
            yield path
        return
    # A name of its own for each reader: what is kept may be dropped under it.
    own = _folder() / uuid.uuid4().hex
    try:
        _obtain(document, own)
        yield own
    finally:
        own.unlink(missing_ok=True)


def forget(document_id: uuid.UUID) -> None:
    """Drop what this machine keeps of a document."""
    for kept in _root().glob(f"{document_id}.*"):
        kept.unlink(missing_ok=True)


def sweep() -> None:
    """Drop what has been kept long enough, and the oldest of what is too much."""
    room = KEPT_BYTES
    for written, size, path in sorted(_files(), reverse=True):
        room -= size if path.suffix else 0  # a reader's own name is another for bytes that are counted already
        if (room < 0 and path.suffix) or time.time() - written > KEPT_SECONDS:
            path.unlink(missing_ok=True)


def _obtain(document: Document, own: Path) -> None:
    kept = _folder() / f"{document.pk}.{document.file_sha256}"
    sweep()
    with suppress(FileNotFoundError):
        os.link(kept, own)
        return
    with originals.lent(document) as fetched:
        shutil.copyfile(fetched, own)
    with suppress(FileExistsError):  # another thread was faster
        os.link(own, kept)
    sweep()
    _sweep_later()


def _sweep_later() -> None:
    """See to it that the last page that anybody looked at goes too, though nobody looks at another."""
    if _waiting.acquire(blocking=False):
        timer = threading.Timer(KEPT_SECONDS + 1, _sweep_now)
        timer.daemon = True
        timer.start()


def _sweep_now() -> None:
    _waiting.release()
    sweep()
    if any(_files()):
        _sweep_later()


def _files() -> Iterator[tuple[float, int, Path]]:
    for path in _root().glob("*"):
        with suppress(FileNotFoundError):
            told = path.stat()
            yield told.st_mtime, told.st_size, path


def _root() -> Path:
    return Path(settings.STORAGE_ROOT, FOLDER)


def _folder() -> Path:
    _root().mkdir(mode=0o700, parents=True, exist_ok=True)
    return _root()
