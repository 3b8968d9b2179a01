"""A page of the original as people see it: its picture, and where a passage stands on it. Nothing of it is stored."""

from __future__ import annotations

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
from http import HTTPStatus
from typing import Any
from uuid import UUID

from accounts.errors import ApiError, not_found, unavailable
from accounts.rls import as_tenant
from documents.models import Document
from documents.parsers.sandbox.client import SandboxClient, register_cleanup
from documents.storage import file_cache, original_file, storage_error
from jobs.outcomes import Permanent, Retryable, StageFailure

log = logging.getLogger("accessa.documents")

Key = tuple[UUID, int, str]
MIME = "image/jpeg"
VERSION = 1  # of how pages are drawn: browsers keep what they have by it
DEFAULT_WIDTH, MIN_WIDTH, MAX_WIDTH = 1000, 100, 1600  # pixels
LONGEST_TEXT = 20_000  # characters of a passage; they have some 2,000
MAX_CONCURRENT = 2  # pages drawn by this process at a time
MAX_WAITING = 8  # callers, those that wait for the store or a turn among them: the process has threads for others
MAX_WAITING_PER_TENANT = 2  # a page's picture and the boxes on it
TURN_SECONDS = 5.0
MEMORY_MB, CPU_SECONDS, WALL_SECONDS = 512, 5, 10.0  # a scan of 35 megapixels is drawn in 256 MB and 0.7 s
REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class Box:
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class PassageLocation:
    """In points; the origin is the top left of the page as it is shown."""

    width: float
    height: float
    boxes: list[Box]


def render_page(document: Document, page: int, *, width: int = DEFAULT_WIDTH) -> bytes:
    """Return a JPEG of a page, counted from 1, ``width`` pixels wide unless it is very long.

    Raises ``Refused``: NOT_FOUND once the document is gone, NOT_READY, PAGE_NOT_FOUND, PAGE_NOT_SHOWN for what cannot
    be drawn within the child's limits, UNAVAILABLE when too many ask, STORAGE_UNAVAILABLE.
    """
    width = min(max(width, MIN_WIDTH), MAX_WIDTH)
    return base64.b64decode(_ask(document, page, {"ask": "picture", "width": width})["picture"])


def locate_passage(document: Document, page: int, text: str) -> PassageLocation:
    """Return where a passage of the parsed markdown, or its part on this page, stands; no boxes when in doubt.

    Raises as ``render`` does.
    """
    told = _ask(document, page, {"ask": "boxes", "text": text[:LONGEST_TEXT]})
    return PassageLocation(told["width"], told["height"], [Box(*box) for box in told["boxes"]])


def require_page(document: Document, page: int) -> None:
    """Raise ``Refused`` unless the document is still there, has come, and has such a page."""
    with as_tenant(document.user_id):
        is_there = Document.objects.filter(pk=document.pk, user_id=document.user_id).exists()
    if not is_there:
        raise not_found()
    if document.stored_at is None:
        raise ApiError("NOT_READY", "The document has not come that far yet.", status=HTTPStatus.CONFLICT)
    if page < 1 or (document.pages is not None and page > document.pages):
        raise _no_such_page()


def _ask(document: Document, page: int, request: dict[str, Any]) -> dict[str, Any]:
    require_page(document, page)
    key = _key(document, page, request)
    if key in _hopeless:
        raise _not_shown()
    try:
        # A store that is slow holds up its own callers, and nobody's drawing.
        with _admission(document.user_id), file_cache.cached_original(document) as path, _turn() as zygote:
            limits = {"cpu_seconds": CPU_SECONDS, "path": str(path.resolve()), "page": page}
            told = zygote.request(request | limits, wall_seconds=WALL_SECONDS)
    except StageFailure as failure:
        raise _refusal(key, failure) from None
    except OSError as error:
        require_page(document, page)  # its file goes with the document
        raise storage_error(error) from None
    if "missing" in told:
        raise _no_such_page()
    return told


def _key(document: Document, page: int, request: dict[str, Any]) -> Key:
    """Tell apart all that is asked about a page: words that cannot be found in time say nothing of its picture."""
    return document.pk, page, hashlib.sha256(json.dumps(request).encode()).hexdigest()


def _refusal(key: Key, failure: StageFailure) -> ApiError:
    log.info("A page is not shown: %s", failure.code)
    if isinstance(failure, Retryable) and failure.code == "PARSE_TIMEOUT":  # the machine's fault, not the page's
        return unavailable("The page could not be drawn in time; try again shortly.")
    if isinstance(failure, Permanent) and not isinstance(failure, original_file.ContentMismatch):
        _hopeless.add(key)
    return _not_shown()


def _not_shown() -> ApiError:
    return ApiError("PAGE_NOT_SHOWN", "This page cannot be shown.", status=HTTPStatus.UNPROCESSABLE_ENTITY)


def _no_such_page() -> ApiError:
    return ApiError("PAGE_NOT_FOUND", "The document has no such page.", status=HTTPStatus.NOT_FOUND, field="page")


class _Hopeless:
    """What was asked about a page and cost a child its life, so that asking it again costs nothing."""

    def __init__(self) -> None:
        self._keys: OrderedDict[Key, None] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, key: Key) -> bool:
        return key in self._keys

    def add(self, key: Key) -> None:
        with self._lock:
            self._keys[key] = None
            while len(self._keys) > REMEMBERED:
                self._keys.popitem(last=False)


class _Admissions:
    """Who is let in to wait, for the store or for a turn: so many of all, and of one tenant so many."""

    def __init__(self) -> None:
        self._of: Counter[UUID] = Counter()
        self._lock = threading.Lock()

    def take(self, user_id: UUID) -> bool:
        with self._lock:
            is_free = self._of.total() < MAX_WAITING and self._of[user_id] < MAX_WAITING_PER_TENANT
            self._of[user_id] += is_free
            self._of += Counter()  # forgets who has none
            return is_free

    def give_back(self, user_id: UUID) -> None:
        with self._lock:
            self._of[user_id] -= 1
            self._of += Counter()


_hopeless = _Hopeless()
_admissions = _Admissions()
_free: queue.LifoQueue[SandboxClient] = (
    queue.LifoQueue()
)  # last in, first out: the second one is started only when needed
for _ in range(MAX_CONCURRENT):
    _free.put(
        register_cleanup(SandboxClient("documents.parsers.sandbox.page_image_child", MEMORY_MB, grace_seconds=2.0))
    )


@contextmanager
def _admission(user_id: UUID) -> Iterator[None]:
    """Raises ``Refused`` when too many are being served, of all or of this tenant."""
    if not _admissions.take(user_id):
        raise _busy()
    try:
        yield
    finally:
        _admissions.give_back(user_id)


@contextmanager
def _turn() -> Iterator[SandboxClient]:
    """Lend one of this process's zygotes. Raises ``Refused`` to who has waited too long."""
    try:
        zygote = _free.get(timeout=TURN_SECONDS)
    except queue.Empty:
        raise _busy() from None
    try:
        yield zygote
    finally:
        _free.put(zygote)


def _busy() -> ApiError:
    return unavailable("Too many pages are being drawn; try again shortly.")
