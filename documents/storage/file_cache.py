"""What was fetched from a far store a moment ago: who looks at one page will turn to the next.

Originals and parsed texts, for every process on this machine, under ``STORAGE_ROOT``. A deleted document's go at once
from the machine that deletes it; from every other, and of every other document, after some minutes: a process sweeps
when it fetches, when it begins, and some minutes after.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.conf import settings

from accounts.errors import not_found
from accounts.rls import as_tenant
from documents import storage
from documents.models import Document
from documents.storage import original_file

log = logging.getLogger("accessa.documents")

FOLDER = ".recent"
MAX_AGE_SECONDS = 300.0
MAX_BYTES = 256 << 20
_waiting = threading.Lock()  # held while a sweep is on its way


@contextmanager
def cached_original(document: Document) -> Iterator[Path]:
    """Lend the original as ``originals.lent`` does, without fetching it again for every page."""
    if _is_near(document.raw_path):
        with original_file.verified_original(document) as path:
            yield path
        return
    # A name of its own for each reader: what is kept may be dropped under it.
    own = _folder() / uuid.uuid4().hex
    try:
        _obtain(document, own)
        yield own
    finally:
        own.unlink(missing_ok=True)


def cached_parsed_text(document: Document, fetch: Callable[[], bytes]) -> bytes:
    """Return the parsed text that ``fetch`` reads, without reading it from afar again for every page."""
    if not document.parsed_path or _is_near(document.parsed_path):
        return fetch()
    kept = _kept(document, document.parsed_sha256 or "")
    evict_expired()
    with suppress(FileNotFoundError):
        return kept.read_bytes()
    fetched = fetch()
    if hashlib.sha256(fetched).hexdigest() == document.parsed_sha256:
        own = _folder() / uuid.uuid4().hex
        try:
            own.write_bytes(fetched)
            _keep(document, own, kept)
        finally:
            own.unlink(missing_ok=True)
    return fetched


def start_eviction() -> None:
    """See to it that what is kept goes in its time, though the process that fetched it has ended."""
    try:
        evict_expired()
        if any(_files()):
            _sweep_later()
    except OSError as error:
        log.warning("What was fetched to be shown cannot be swept: %s", type(error).__name__)


def evict_document(document_id: uuid.UUID) -> None:
    """Drop what this machine keeps of a document."""
    for kept in _root().glob(f"{document_id}.*"):
        kept.unlink(missing_ok=True)


def evict_expired() -> None:
    """Drop what has been kept long enough, and the oldest of what is too much."""
    room = MAX_BYTES
    for written, size, path in sorted(_files(), reverse=True):
        room -= size if path.suffix else 0  # a reader's own name is another for bytes that are counted already
        if (room < 0 and path.suffix) or time.time() - written > MAX_AGE_SECONDS:
            path.unlink(missing_ok=True)


def _obtain(document: Document, own: Path) -> None:
    kept = _kept(document, document.file_sha256)
    evict_expired()
    with suppress(FileNotFoundError):
        os.link(kept, own)
        return
    with original_file.verified_original(document) as fetched:
        shutil.copyfile(fetched, own)
    _keep(document, own, kept)


def _keep(document: Document, own: Path, kept: Path) -> None:
    """Keep a file that was fetched for the next reader. Raises ``Refused("NOT_FOUND")`` when its document has gone."""
    with suppress(FileExistsError):  # another thread was faster
        os.link(own, kept)
    # Deleted while it was fetched: who deleted it has looked before there was anything to drop.
    with as_tenant(document.user_id):
        is_there = Document.objects.filter(pk=document.pk, user_id=document.user_id).exists()
    if not is_there:
        evict_document(document.pk)
        raise not_found()
    evict_expired()
    _sweep_later()


def _kept(document: Document, sha256: str) -> Path:
    return _folder() / f"{document.pk}.{sha256}"


def _is_near(path: str) -> bool:
    return isinstance(storage.locate(path)[0], storage.LocalSignedStorage)


def _sweep_later() -> None:
    """See to it that the last page that anybody looked at goes too, though nobody looks at another."""
    if _waiting.acquire(blocking=False):
        timer = threading.Timer(MAX_AGE_SECONDS + 1, _sweep_now)
        timer.daemon = True
        timer.start()


def _sweep_now() -> None:
    _waiting.release()
    start_eviction()


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
