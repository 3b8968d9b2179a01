"""The zygote of page pictures: forks a capped child for each page that somebody looks at. No Django in here.

It speaks as ``documents.parsers.child`` does.
"""

from __future__ import annotations

import base64
from typing import Any

import pypdfium2

from documents.parsers import cage, forks
from documents.parsers.engines import SPECIMEN
from documents.parsers.pages import drawing, finding, glyphs

CPU_SECONDS = 4.0  # real pages take 0.01 to 0.3 s; bombs must be refused within 5 s (RELIABILITY)


def answer_to(request: forks.Message) -> forks.Message:
    """The one thing a child does: ``picture``, as JPEG in base64, or ``boxes``, or ``missing``, or ``refused``."""
    cage.allow_cpu(CPU_SECONDS)
    try:
        document = pypdfium2.PdfDocument(request["path"])
        cage.close_the_door()
        if not 1 <= request["page"] <= len(document):
            return {"missing": True}
        return _shown(document[request["page"] - 1], request)
    except (pypdfium2.PdfiumError, drawing.NotShown):
        return {"refused": "PDF_MALFORMED"}
    except MemoryError:
        return {"refused": "PARSER_OUT_OF_MEMORY"}


def _shown(page: Any, request: forks.Message) -> forks.Message:
    width, height = drawing.size(page)
    if request["ask"] == "picture":
        return {"picture": base64.b64encode(drawing.jpeg(page, request["width"])).decode()}
    boxes = finding.boxes(glyphs.words(page), request["text"], glyphs.placing(page), width, height)
    return {"width": width, "height": height, "boxes": boxes}


def warm_up() -> None:
    """Load what Pillow and PDFium load late, in the zygote: a child can open no file that they would still need."""
    page = pypdfium2.PdfDocument(SPECIMEN)[0]
    for request in ({"ask": "picture", "width": 100}, {"ask": "boxes", "text": "Some words, and a few more."}):
        _shown(page, request)


if __name__ == "__main__":
    warm_up()
    forks.serve(0, 1, answer_to)
