"""From a page to its picture, in a size that is bounded whatever the page claims."""

from __future__ import annotations

import io
import math
from typing import Any

LONGEST = 2.5  # times the width: a page that is longer is shown narrower
SHORTEST = 8  # pixels: nothing can be seen on less
SLIVER = 0.001  # of a pixel, for which PDFium would add a whole one
QUALITY = 85  # with full colour; PNG takes twenty times as long


class PageNotRenderable(Exception):
    """The page claims a size of which no picture can be made."""


def page_size(page: Any) -> tuple[float, float]:
    """Width and height in points, as the page is shown: cropped and turned."""
    width, height = page.get_size()
    if not (width > 0 and height > 0 and math.isfinite(width) and math.isfinite(height)):
        raise PageNotRenderable
    return width, height


def render_jpeg(page: Any, wanted: int) -> bytes:
    """Draw the page ``wanted`` pixels wide, its annotations and forms with it."""
    width, height = page_size(page)
    scale = (wanted - SLIVER) * min(1 / width, LONGEST / height)
    if min(width, height) * scale < SHORTEST:
        raise PageNotRenderable
    made = io.BytesIO()
    page.render(scale=scale, rev_byteorder=True).to_pil().convert("RGB").save(
        made, "JPEG", quality=QUALITY, subsampling=0
    )
    return made.getvalue()
