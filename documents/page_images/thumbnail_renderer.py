"""Thumbnails of documents: the first page, rendered once when a list first shows it, then read from the store."""

import threading

from accounts import rate_limit
from accounts.common_error_codes import unavailable
from documents.models import Document
from documents.page_images import renderer
from documents.storage import thumbnails
from documents.storage.buckets import storage_error

WIDTH = 360  # pixels: a card of the grid on a screen of high density
SECONDS = 4.0
# One at a time: a browser asks for six, and the renderer lets two requests of a tenant wait.
_rendering = threading.Lock()


def get_thumbnail(document: Document) -> bytes:
    """Return the JPEG of the first page. Raises ``ApiError`` as ``renderer.render_page``, and over a rate limit."""
    renderer.require_page(document, 1)
    try:
        return thumbnails.read_thumbnail(document) or _render(document)
    except OSError as error:
        raise storage_error(error) from None


def _render(document: Document) -> bytes:
    rate_limit.check_rate(rate_limit.PAGE_VIEWS, document.user_id)
    if not _rendering.acquire(timeout=SECONDS):
        raise unavailable(renderer.BUSY)
    try:
        image = renderer.render_page(document, 1, width=WIDTH)
    finally:
        _rendering.release()
    thumbnails.store_thumbnail(document, image)
    return image
