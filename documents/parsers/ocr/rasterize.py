"""From a page to its picture, in a size that is bounded whatever the page claims."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pypdfium2
from numpy.typing import NDArray

Picture = NDArray[np.uint8]  # rows, columns, blue-green-red

LONG_SIDE = 2600  # pixels: 220 dpi of an A4 page. At 2,000 the spaces of small print are lost; 3,200 adds nothing
SHORT_SIDE = 32  # pixels: under this the detector has nothing to look at
SCALE_MOST = 4.0  # 288 dpi: no small page has more to show


def open_document(path: Path) -> Any:
    """Nothing when PDFium cannot open it, though the other engine could."""
    try:
        return pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError:
        return None


def picture(document: Any, number: int) -> Picture | None:
    """The page as it is shown, its /Rotate honoured. Nothing when it cannot be shown."""
    if document is None:
        return None
    try:
        page = document[number]
        scale = _scale(*page.get_size())
        shown = None if scale is None else np.array(page.render(scale=scale).to_numpy()[:, :, :3])
        page.close()
    except (pypdfium2.PdfiumError, IndexError):
        return None
    return shown


def _scale(width: float, height: float) -> float | None:
    short, long = sorted((width, height))
    if not (short > 0 and math.isfinite(long)):
        return None
    scale = min(LONG_SIDE / long, SCALE_MOST)
    return scale if short * scale >= SHORT_SIDE else None
