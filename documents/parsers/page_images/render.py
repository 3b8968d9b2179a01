"""Rendering of a PDF page as a JPEG, of a bounded size whatever the page claims."""

import io
import math
from typing import Any

LONGEST = 2.5  # times the width; a longer page is rendered narrower
SHORTEST = 8  # pixels: nothing can be seen on less
SLIVER = 0.001  # of a pixel, for which PDFium would add a whole one
QUALITY = 85  # with full colour; PNG takes twenty times as long


class PageNotRenderable(Exception):
    """The page claims a size that cannot be rendered."""


def page_size(page: Any) -> tuple[float, float]:
    """Return width and height in points of the page as it is shown, cropped and turned."""
    width, height = page.get_size()
    if not (width > 0 and height > 0 and math.isfinite(width) and math.isfinite(height)):
        raise PageNotRenderable
    return width, height


def render_jpeg(page: Any, pixels: int) -> bytes:
    """Render the page ``pixels`` wide, with its annotations and forms."""
    width, height = page_size(page)
    scale = (pixels - SLIVER) * min(1 / width, LONGEST / height)
    if min(width, height) * scale < SHORTEST:
        raise PageNotRenderable
    jpeg = io.BytesIO()
    image = page.render(scale=scale, rev_byteorder=True).to_pil().convert("RGB")
    image.save(jpeg, "JPEG", quality=QUALITY, subsampling=0)
    return jpeg.getvalue()
