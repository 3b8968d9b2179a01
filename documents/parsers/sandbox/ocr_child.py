"""Fork server for OCR: loads the models once and forks a limited child for each batch of pages. No Django in here.

It uses the protocol of ``documents.parsers.sandbox.pdf_child``. If the libraries do not load, it stays to report why.
"""

import logging
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

from documents.parsers.ocr import rasterize
from documents.parsers.sandbox import fork_server, rlimits

PAGE_CPU_SECONDS = 40.0  # real pages take 1 to 11 s
RENDER_CPU_SECONDS = 4.0  # bombs must be refused within 5 s (RELIABILITY)
OUT_OF_MEMORY = ("alloc", "memory")  # in the messages of OpenCV's and onnxruntime's own exceptions

Recognizer = Callable[[rasterize.Picture], str]


def respond(recognize: Recognizer, request: fork_server.Message) -> fork_server.Message:
    """Return the markdown of each page, in the child."""
    try:
        rlimits.limit_cpu_time(RENDER_CPU_SECONDS)
        document = rasterize.open_document(Path(request["path"]))
        rlimits.forbid_opening_files()
        pages = []
        for number in request["pages"]:
            rlimits.limit_cpu_time(RENDER_CPU_SECONDS)
            picture = rasterize.render_picture(document, number)
            rlimits.limit_cpu_time(PAGE_CPU_SECONDS)
            pages.append("" if picture is None else recognize(picture))
        return {"markdown": pages}
    except MemoryError:
        return {"refused": "PARSER_OUT_OF_MEMORY"}
    except Exception as error:
        if any(word in str(error).lower() for word in OUT_OF_MEMORY):
            return {"refused": "PARSER_OUT_OF_MEMORY"}
        raise


if __name__ == "__main__":
    logging.disable()  # RapidOCR logs at every turn
    try:
        recognition = import_module("documents.parsers.ocr.recognize")
        recognition.warm_up()
    except (ImportError, OSError) as error:  # OSError: a model that is not in its place
        reason = str(error).split("\n")[0]
        fork_server.serve(0, 1, lambda request: {"unavailable": reason})
    else:
        fork_server.serve(0, 1, partial(respond, recognition.recognize_image))
