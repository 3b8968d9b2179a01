"""The OCR's zygote: has loaded the models once and forks a capped child for each slice of pages. No Django in here.

It speaks as ``documents.parsers.sandbox.pdf_child`` does. Where the libraries do not load, it stays to say why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from documents.parsers.ocr import rasterize
from documents.parsers.sandbox import fork_server, rlimits

PAGE_CPU_SECONDS = 40.0  # real pages take 1 to 11 s
RENDER_CPU_SECONDS = 4.0  # bombs must be refused within 5 s (RELIABILITY)
OUT_OF_MEMORY = ("alloc", "memory")  # what OpenCV and onnxruntime say, each in an exception of its own


Reader = Callable[[rasterize.Picture], str]


def respond(read: Reader, request: fork_server.Message) -> fork_server.Message:
    """The one thing a child does."""
    try:
        return {"markdown": _read(read, Path(request["path"]), request["pages"])}
    except MemoryError:
        return {"refused": "PARSER_OUT_OF_MEMORY"}
    except Exception as error:
        if any(word in str(error).lower() for word in OUT_OF_MEMORY):
            return {"refused": "PARSER_OUT_OF_MEMORY"}
        raise


def _read(read: Reader, path: Path, pages: list[int]) -> list[str]:
    rlimits.limit_cpu_time(RENDER_CPU_SECONDS)
    document = rasterize.open_document(path)
    rlimits.forbid_opening_files()
    return [_page(read, document, number) for number in pages]


def _page(read: Reader, document: Any, number: int) -> str:
    rlimits.limit_cpu_time(RENDER_CPU_SECONDS)
    picture = rasterize.picture(document, number)
    if picture is None:
        return ""
    rlimits.limit_cpu_time(PAGE_CPU_SECONDS)
    return read(picture)


if __name__ == "__main__":
    logging.disable()  # RapidOCR logs at every turn
    try:
        reading = import_module("documents.parsers.ocr.recognize")
        reading.warm_up()
    except (ImportError, OSError) as error:  # OSError: a model that is not in its place
        reason = str(error).split("\n")[0]
        fork_server.serve(0, 1, lambda request: {"unavailable": reason})
    else:
        fork_server.serve(0, 1, partial(respond, reading.recognize_image))
