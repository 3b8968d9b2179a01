"""Fork server for PDFs: imports the engines once and forks a limited child for each document. No Django in here.

``python -m documents.parsers.pdf_fork_server`` reads requests on stdin and writes two messages for each on stdout:
the child's outcome and its response. It ends when stdin closes, which is when the worker dies.
"""

import time
from pathlib import Path
from typing import Any

import pdf_oxide

from documents.parsers import pdf_engines, text_quality
from documents.parsers.sandbox import fork_server, rlimits


def respond(request: dict[str, Any]) -> dict[str, Any]:
    """Inspect or parse one document, in the child; ``has_layout`` tells whether LiteParse has read it."""
    try:
        document = pdf_engines.open_document(Path(request["path"]))
        inspection = {"pages": document.count, "encrypted": document.encrypted, "parse_seconds": 0.0}
        if request["ask"] == "inspect" or document.count > request.get("max_pages", document.count):
            return inspection
        began = time.monotonic()
        rlimits.forbid_opening_files()
        layouts = pdf_engines.parse_layouts(document) if request.get("with_layout", True) else {}
        pages, doubtful = pdf_engines.extract_markdown(document, layouts)
        text = text_quality.remove_unreadable(pages)
        parsed = {
            "markdown": text.pages,
            "doubtful": sorted({*doubtful, *text.partial}),
            "unreadable": text.unreadable,
            "has_layout": bool(layouts),
        }
        return inspection | parsed | {"parse_seconds": time.monotonic() - began}
    except pdf_engines.PdfError as error:
        return {"refused": error.code}
    except MemoryError:
        return {"refused": "PARSER_OUT_OF_MEMORY"}


if __name__ == "__main__":
    pdf_oxide.disable_logging()  # it logs pieces of the document
    pdf_engines.warm_up()
    fork_server.serve(0, 1, respond)
