"""Page images of originals and the boxes of a passage on its page, made on demand in the sandbox and not stored."""

import base64
import hashlib
import json
import logging
import queue
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from accounts.common_error_codes import not_found, unavailable
from accounts.errors import ApiError
from accounts.rls import as_tenant
from documents import verified_original
from documents.error_codes import NOT_READY, PAGE_NOT_FOUND, PAGE_NOT_SHOWN
from documents.models import Document
from documents.parsers.sandbox.client import SandboxClient, register_cleanup
from documents.storage import file_cache
from documents.storage.buckets import storage_error
from jobs.outcomes import Permanent, Retryable, StageFailure

log = logging.getLogger("accessa.documents")

Key = tuple[UUID, int, str]
MIME = "image/jpeg"
VERSION = 1  # of the rendering; part of the ETag, by which browsers cache images
DEFAULT_WIDTH, MIN_WIDTH, MAX_WIDTH = 1000, 100, 1600  # pixels
MAX_PASSAGE_CHARS = 20_000  # a passage has some 2,000
MAX_CONCURRENT = 2  # pages rendered by this process at a time
MAX_WAITING = 8  # requests that wait for the store or a sandbox: the process needs its other threads
MAX_WAITING_PER_TENANT = 2  # a page's image and the boxes on it
QUEUE_SECONDS = 5.0
MEMORY_MB, CPU_SECONDS, WALL_SECONDS = 512, 5, 10.0  # a scan of 35 megapixels is rendered in 256 MB and 0.7 s
BUSY = "Too many pages are being drawn; try again shortly."
MAX_FAILURES = 1000  # remembered


@dataclass(frozen=True, slots=True)
class Box:
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class PassageLocation:
    """Boxes of a passage in points; the origin is the top left of the page as it is shown."""

    width: float
    height: float
    boxes: list[Box]


_lock = threading.Lock()
_failed: OrderedDict[Key, None] = OrderedDict()  # requests that killed a child, so that repeating them costs nothing
_waiting: Counter[UUID] = Counter()  # requests by tenant
_sandboxes: queue.LifoQueue[SandboxClient] = queue.LifoQueue()  # last in, first out: the second starts only when needed
for _ in range(MAX_CONCURRENT):
    _sandboxes.put(
        register_cleanup(SandboxClient("documents.page_images.page_fork_server", MEMORY_MB, grace_seconds=2.0))
    )


def render_page(document: Document, page: int, *, width: int = DEFAULT_WIDTH) -> bytes:
    """Return a JPEG of a page, counted from 1, ``width`` pixels wide unless it is very long.

    Raises ``ApiError``: NOT_FOUND once the document is deleted, NOT_READY, PAGE_NOT_FOUND, PAGE_NOT_SHOWN for a page
    that cannot be rendered within the child's limits, UNAVAILABLE under too many requests, STORAGE_UNAVAILABLE.
    """
    width = min(max(width, MIN_WIDTH), MAX_WIDTH)
    return base64.b64decode(_request(document, page, {"ask": "picture", "width": width})["picture"])


def locate_passage(document: Document, page: int, text: str) -> PassageLocation:
    """Return the boxes of a passage of the parsed markdown, or of its part on this page; no boxes when in doubt.

    Raises as ``render_page`` does.
    """
    response = _request(document, page, {"ask": "boxes", "text": text[:MAX_PASSAGE_CHARS]})
    return PassageLocation(response["width"], response["height"], [Box(*box) for box in response["boxes"]])


def require_page(document: Document, page: int) -> None:
    """Raise ``ApiError`` unless the document still exists, is stored, and has such a page."""
    with as_tenant(document.user_id):
        exists = Document.objects.filter(pk=document.pk, user_id=document.user_id).exists()
    if not exists:
        raise not_found()
    if document.stored_at is None:
        raise ApiError(NOT_READY)
    if page < 1 or (document.pages is not None and page > document.pages):
        raise ApiError(PAGE_NOT_FOUND, field="page")


def _request(document: Document, page: int, request: dict[str, Any]) -> dict[str, Any]:
    require_page(document, page)
    # The whole request is the key: a passage that cannot be located in time says nothing about the page's image.
    key = document.pk, page, hashlib.sha256(json.dumps(request).encode()).hexdigest()
    if key in _failed:
        raise ApiError(PAGE_NOT_SHOWN)
    try:
        # A slow store delays its own requests, and no rendering.
        with _admission(document.user_id), file_cache.cached_original(document) as path, _sandbox() as sandbox:
            limits = {"cpu_seconds": CPU_SECONDS, "path": str(path.resolve()), "page": page}
            response = sandbox.request(request | limits, wall_seconds=WALL_SECONDS)
    except StageFailure as failure:
        log.info("A page is not shown: %s", failure.code)
        if isinstance(failure, Retryable) and failure.code == "PARSE_TIMEOUT":  # the machine is slow, not the page
            raise unavailable("The page could not be drawn in time; try again shortly.") from None
        if isinstance(failure, Permanent) and not isinstance(failure, verified_original.ContentMismatch):
            with _lock:
                _failed[key] = None
                if len(_failed) > MAX_FAILURES:
                    _failed.popitem(last=False)
        raise ApiError(PAGE_NOT_SHOWN) from None
    except OSError as error:
        require_page(document, page)  # the file of a deleted document is gone
        raise storage_error(error) from None
    if "missing" in response:
        raise ApiError(PAGE_NOT_FOUND, field="page")
    return response


@contextmanager
def _admission(user_id: UUID) -> Iterator[None]:
    """Count a request of a tenant; raise ``ApiError`` when too many of all or of this tenant are waiting."""
    with _lock:
        if _waiting.total() >= MAX_WAITING or _waiting[user_id] >= MAX_WAITING_PER_TENANT:
            raise unavailable(BUSY)
        _waiting[user_id] += 1
    try:
        yield
    finally:
        with _lock:
            _waiting[user_id] -= 1
            if not _waiting[user_id]:
                del _waiting[user_id]


@contextmanager
def _sandbox() -> Iterator[SandboxClient]:
    """Borrow one of this process's sandboxes; raise ``ApiError`` after too long a wait."""
    try:
        sandbox = _sandboxes.get(timeout=QUEUE_SECONDS)
    except queue.Empty:
        raise unavailable(BUSY) from None
    try:
        yield sandbox
    finally:
        _sandboxes.put(sandbox)
