"""Fork server for page images: forks a limited child for each page that is viewed. No Django in here.

It uses the protocol of ``documents.parsers.pdf_fork_server``.
"""

import base64
import io
import math
from typing import Any

import pypdfium2

from documents.page_images import passage_boxes
from documents.parsers.pdf_engines import WARM_UP_PDF
from documents.parsers.sandbox import fork_server, rlimits

CPU_SECONDS = 4.0  # real pages take 0.01 to 0.3 s; bombs must be refused within 5 s (RELIABILITY)
LONGEST = 2.5  # times the width; a longer page is rendered narrower
SHORTEST = 8  # pixels: nothing can be seen on less
SLIVER = 0.001  # of a pixel, for which PDFium would add a whole one
QUALITY = 85  # with full colour; PNG takes twenty times as long


class PageNotRenderable(Exception):
    """The page claims a size that cannot be rendered."""


def respond(request: fork_server.Message) -> fork_server.Message:
    """Return ``picture``, a JPEG in base64, or ``boxes``, ``missing`` or ``refused``, in the child."""
    rlimits.limit_cpu_time(CPU_SECONDS)
    try:
        document = pypdfium2.PdfDocument(request["path"])
        rlimits.forbid_opening_files()
        if not 1 <= request["page"] <= len(document):
            return {"missing": True}
        return _render_or_locate(document[request["page"] - 1], request)
    except (pypdfium2.PdfiumError, PageNotRenderable):
        return {"refused": "PDF_MALFORMED"}
    except MemoryError:
        return {"refused": "PARSER_OUT_OF_MEMORY"}


def _render_or_locate(page: Any, request: fork_server.Message) -> fork_server.Message:
    width, height = page.get_size()  # in points, as the page is shown: cropped and turned
    if not (width > 0 and height > 0 and math.isfinite(width) and math.isfinite(height)):
        raise PageNotRenderable
    if request["ask"] == "boxes":
        return {"width": width, "height": height, "boxes": passage_boxes.locate_boxes(page, request["text"])}
    scale = (request["width"] - SLIVER) * min(1 / width, LONGEST / height)
    if min(width, height) * scale < SHORTEST:
        raise PageNotRenderable
    jpeg = io.BytesIO()
    image = page.render(scale=scale, rev_byteorder=True).to_pil().convert("RGB")  # with annotations and forms
    image.save(jpeg, "JPEG", quality=QUALITY, subsampling=0)
    return {"picture": base64.b64encode(jpeg.getvalue()).decode()}


def warm_up() -> None:
    """Load what Pillow and PDFium load late, before the fork: a child can open no file that they would still need."""
    page = pypdfium2.PdfDocument(WARM_UP_PDF)[0]
    for request in ({"ask": "picture", "width": 100}, {"ask": "boxes", "text": "Some words, and a few more."}):
        _render_or_locate(page, request)


if __name__ == "__main__":
    warm_up()
    fork_server.serve(0, 1, respond)
