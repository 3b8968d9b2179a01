"""Fork server for OCR: loads the models once and forks a limited child for each batch of pages. No Django in here.

It uses the protocol of ``documents.parsers.pdf_fork_server``. If the libraries do not load, it stays to report why.
"""

import logging
import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pypdfium2
from numpy.typing import NDArray

from documents.parsers.sandbox import fork_server, rlimits

Picture = NDArray[np.uint8]  # rows, columns, blue-green-red
PAGE_CPU_SECONDS = 40.0  # real pages take 1 to 11 s
RENDER_CPU_SECONDS = 4.0  # bombs must be refused within 5 s (RELIABILITY)
OUT_OF_MEMORY = ("alloc", "memory")  # in the messages of OpenCV's and onnxruntime's own exceptions
LONG_SIDE = 2600  # pixels: 220 dpi of an A4 page. At 2,000 the spaces of small print are lost; 3,200 adds nothing
SHORT_SIDE = 32  # pixels: smaller pages hold nothing for the detector
SCALE_MOST = 4.0  # 288 dpi: no small page has more to show


def respond(recognize: Callable[[Picture], str], request: fork_server.Message) -> fork_server.Message:
    try:
        rlimits.limit_cpu_time(RENDER_CPU_SECONDS)
        try:
            document = pypdfium2.PdfDocument(request["path"])
        except pypdfium2.PdfiumError:  # although the other engine could open it
            return {"markdown": ["" for _ in request["pages"]]}
        rlimits.forbid_opening_files()
        pages = []
        for number in request["pages"]:
            rlimits.limit_cpu_time(RENDER_CPU_SECONDS)
            picture = _render_page(document, number)
            rlimits.limit_cpu_time(PAGE_CPU_SECONDS)
            pages.append("" if picture is None else recognize(picture))
        return {"markdown": pages}
    except MemoryError:
        return {"refused": "PARSER_OUT_OF_MEMORY"}
    except Exception as error:
        if any(word in str(error).lower() for word in OUT_OF_MEMORY):
            return {"refused": "PARSER_OUT_OF_MEMORY"}
        raise


def _render_page(document: Any, number: int) -> Picture | None:
    """Return a bitmap of bounded size whatever the page claims, its /Rotate honoured; None if it cannot be rendered."""
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


if __name__ == "__main__":
    logging.disable()  # RapidOCR logs at every turn
    try:
        recognition = import_module("documents.parsers.ocr.recognize")
        recognition.warm_up()
    except (ImportError, OSError) as error:  # OSError: a model that is not in its place
        reason = str(error).split("\n")[0]
        fork_server.serve(0, 1, lambda request: {"unavailable": reason})
    else:
        fork_server.serve(0, 1, partial(respond, recognition.image_to_markdown))
