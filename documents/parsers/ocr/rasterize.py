"""Render a PDF page as a bitmap for OCR, of a bounded size whatever the page claims."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pypdfium2
from numpy.typing import NDArray

Picture = NDArray[np.uint8]  # rows, columns, blue-green-red

LONG_SIDE = 2600  # pixels: 220 dpi of an A4 page. At 2,000 the spaces of small print are lost; 3,200 adds nothing
SHORT_SIDE = 32  # pixels: smaller pages hold nothing for the detector
SCALE_MOST = 4.0  # 288 dpi: no small page has more to show


def open_document(path: Path) -> Any:
    """Return the PDF; None when PDFium cannot open it, although the other engine could."""
    try:
        return pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError:
        return None


def render_picture(document: Any, number: int) -> Picture | None:
    """Return the page as it is shown, its /Rotate honoured; None when it cannot be rendered."""
    if document is None:
        return None
    try:
        page = document[number]
        short, long = sorted(page.get_size())
        if not (short > 0 and math.isfinite(long)):
            return None
        scale = min(LONG_SIDE / long, SCALE_MOST)
        if short * scale < SHORT_SIDE:
            return None
        pixels = np.array(page.render(scale=scale).to_numpy()[:, :, :3])
        page.close()
    except (pypdfium2.PdfiumError, IndexError):
        return None
    return pixels
