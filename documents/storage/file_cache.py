"""Local disk cache of originals and parsed texts fetched from remote storage (5 minutes, 256 MB), shared by processes.

A deleted document's files are evicted at once on the machine that deletes it, and after some minutes on every other:
each process evicts when it fetches, when it starts, and some minutes after.
"""

import hashlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.conf import settings

from accounts.common_error_codes import not_found
from accounts.rls import as_tenant
from documents import parse_store, verified_original
from documents.models import Document
from documents.storage import buckets, local

log = logging.getLogger("accessa.documents")

FOLDER = ".recent"
MAX_AGE_SECONDS = 300.0
MAX_BYTES = 256 << 20
_timer_pending = threading.Lock()  # held while an eviction is scheduled


@contextmanager
def cached_original(document: Document) -> Iterator[Path]:
    """Yield the original as ``verified_original`` does, without fetching it again for every page."""
    if _is_local(document.raw_path):
        with verified_original.verified_original(document) as path:
            yield path
        return
    # Each reader has its own hard link: the cached file may be evicted meanwhile.
    own = _folder() / uuid.uuid4().hex
    try:
        cached = _folder() / f"{document.pk}.{document.file_sha256}"
        evict_expired()
        try:
            os.link(cached, own)
        except FileNotFoundError:
            with verified_original.verified_original(document) as fetched, buckets.open_private(own) as copy:
                copy.write(fetched.read_bytes())
            _cache(document, own, cached)
        yield own
    finally:
        own.unlink(missing_ok=True)


def read_page(document: Document, number: int) -> tuple[str, int] | None:
    """Return the markdown of a page, from 1, and its offset in the parsed text; None where there is no parse.

    A parse without page starts is page 1 as a whole. Raises ``OSError`` of the store.
    """
    text = _cached_parse(document).decode()
    if not text:
        return None
    starts = [*(document.page_starts or [0]), len(text)]
    if not 1 <= number < len(starts):
        return "", len(text)
    return text[starts[number - 1] : starts[number]], starts[number - 1]


def _cached_parse(document: Document) -> bytes:
    if not document.parsed_path or _is_local(document.parsed_path):
        return parse_store.read_bytes(document)
    cached = _folder() / f"{document.pk}.{document.parsed_sha256 or ''}"
    evict_expired()
    with suppress(FileNotFoundError):
        return cached.read_bytes()
    fetched = parse_store.read_bytes(document)
    if hashlib.sha256(fetched).hexdigest() == document.parsed_sha256:
        own = _folder() / uuid.uuid4().hex
        try:
            with buckets.open_private(own) as file:
                file.write(fetched)
            _cache(document, own, cached)
        finally:
            own.unlink(missing_ok=True)
    return fetched


def start_eviction() -> None:
    """Evict expired files; while any are left, even those of an ended process, schedule the next eviction."""
    try:
        evict_expired()
        if any(_cached_files()):
            _schedule_eviction()
    except OSError as error:
        log.warning("Expired files of the cache cannot be deleted: %s", type(error).__name__)


def evict_document(document_id: uuid.UUID) -> None:
    """Delete this machine's cached files of a document."""
    for cached in Path(settings.STORAGE_ROOT, FOLDER).glob(f"{document_id}.*"):
        cached.unlink(missing_ok=True)


def evict_expired() -> None:
    """Delete files older than ``MAX_AGE_SECONDS``, and the oldest beyond ``MAX_BYTES``."""
    room = MAX_BYTES
    for written, size, path in sorted(_cached_files(), reverse=True):
        room -= size if path.suffix else 0  # a reader's link has no suffix and shares bytes that are counted already
        if (room < 0 and path.suffix) or time.time() - written > MAX_AGE_SECONDS:
            path.unlink(missing_ok=True)


def _cache(document: Document, own: Path, cached: Path) -> None:
    """Link a fetched file for later readers. Raises ``ApiError("NOT_FOUND")`` when its document has been deleted."""
    with suppress(FileExistsError):  # another thread was faster
        os.link(own, cached)
    # Deleted during the fetch: its eviction ran before there was a file.
    with as_tenant(document.user_id):
        exists = Document.objects.filter(pk=document.pk, user_id=document.user_id).exists()
    if not exists:
        evict_document(document.pk)
        raise not_found()
    evict_expired()
    _schedule_eviction()


def _is_local(path: str) -> bool:
    return isinstance(buckets.locate(path)[0], local.LocalSignedStorage)


def _schedule_eviction() -> None:
    """Evict after ``MAX_AGE_SECONDS`` even if no page is viewed again."""

    def evict() -> None:
        _timer_pending.release()
        start_eviction()

    if _timer_pending.acquire(blocking=False):
        timer = threading.Timer(MAX_AGE_SECONDS + 1, evict)
        timer.daemon = True
        timer.start()


def _cached_files() -> Iterator[tuple[float, int, Path]]:
    for path in Path(settings.STORAGE_ROOT, FOLDER).glob("*"):
        with suppress(FileNotFoundError):
            stat = path.stat()
            yield stat.st_mtime, stat.st_size, path


def _folder() -> Path:
    return buckets.make_private_folder(Path(settings.STORAGE_ROOT, FOLDER))
