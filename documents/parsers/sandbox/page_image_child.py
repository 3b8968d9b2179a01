"""The zygote of page pictures: forks a capped child for each page that somebody looks at. No Django in here.

It speaks as ``documents.parsers.sandbox.pdf_child`` does.
"""

from __future__ import annotations

import base64
from typing import Any

import pypdfium2

from documents.parsers.page_images import locate, render, words
from documents.parsers.pdf_engines import SPECIMEN
from documents.parsers.sandbox import fork_server, rlimits

CPU_SECONDS = 4.0  # real pages take 0.01 to 0.3 s; bombs must be refused within 5 s (RELIABILITY)


def answer_to(request: fork_server.Message) -> fork_server.Message:
    """The one thing a child does: ``picture``, as JPEG in base64, or ``boxes``, or ``missing``, or ``refused``."""
    rlimits.allow_cpu(CPU_SECONDS)
    try:
        document = pypdfium2.PdfDocument(request["path"])
        rlimits.close_the_door()
        if not 1 <= request["page"] <= len(document):
            return {"missing": True}
        return _shown(document[request["page"] - 1], request)
    except (pypdfium2.PdfiumError, render.NotShown):
        return {"refused": "PDF_MALFORMED"}
    except MemoryError:
        return {"refused": "PARSER_OUT_OF_MEMORY"}


def _shown(page: Any, request: fork_server.Message) -> fork_server.Message:
    width, height = render.size(page)
    if request["ask"] == "picture":
        return {"picture": base64.b64encode(render.jpeg(page, request["width"])).decode()}
    boxes = locate.boxes(words.words(page), request["text"], words.placing(page), width, height)
    return {"width": width, "height": height, "boxes": boxes}


def warm_up() -> None:
    """Load what Pillow and PDFium load late, in the zygote: a child can open no file that they would still need."""
    page = pypdfium2.PdfDocument(SPECIMEN)[0]
    for request in ({"ask": "picture", "width": 100}, {"ask": "boxes", "text": "Some words, and a few more."}):
        _shown(page, request)


if __name__ == "__main__":
    warm_up()
    fork_server.serve(0, 1, answer_to)
