"""Fork server for page images: forks a limited child for each page that is viewed. No Django in here.

It uses the protocol of ``documents.parsers.sandbox.pdf_child``.
"""

import base64
from typing import Any

import pypdfium2

from documents.parsers.page_images import locate, render, words
from documents.parsers.pdf_engines import WARM_UP_PDF
from documents.parsers.sandbox import fork_server, rlimits

CPU_SECONDS = 4.0  # real pages take 0.01 to 0.3 s; bombs must be refused within 5 s (RELIABILITY)


def respond(request: fork_server.Message) -> fork_server.Message:
    """Return ``picture``, a JPEG in base64, or ``boxes``, ``missing`` or ``refused``, in the child."""
    rlimits.limit_cpu_time(CPU_SECONDS)
    try:
        document = pypdfium2.PdfDocument(request["path"])
        rlimits.forbid_opening_files()
        if not 1 <= request["page"] <= len(document):
            return {"missing": True}
        return _render_or_locate(document[request["page"] - 1], request)
    except (pypdfium2.PdfiumError, render.PageNotRenderable):
        return {"refused": "PDF_MALFORMED"}
    except MemoryError:
        return {"refused": "PARSER_OUT_OF_MEMORY"}


def _render_or_locate(page: Any, request: fork_server.Message) -> fork_server.Message:
    width, height = render.page_size(page)
    if request["ask"] == "picture":
        return {"picture": base64.b64encode(render.render_jpeg(page, request["width"])).decode()}
    boxes = locate.locate_boxes(words.extract_words(page), request["text"], words.page_transform(page), width, height)
    return {"width": width, "height": height, "boxes": boxes}


def warm_up() -> None:
    """Load what Pillow and PDFium load late, before the fork: a child can open no file that they would still need."""
    page = pypdfium2.PdfDocument(WARM_UP_PDF)[0]
    for request in ({"ask": "picture", "width": 100}, {"ask": "boxes", "text": "Some words, and a few more."}):
        _render_or_locate(page, request)


if __name__ == "__main__":
    warm_up()
    fork_server.serve(0, 1, respond)
