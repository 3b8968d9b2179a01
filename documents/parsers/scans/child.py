"""The OCR's zygote: has loaded the models once and forks a capped child for each slice of pages. No Django in here.

It speaks as ``documents.parsers.child`` does. Where the libraries do not load, it stays to say why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from documents.parsers import cage, forks
from documents.parsers.scans import pictures

PAGE_CPU_SECONDS = 40.0  # real pages take 1 to 11 s
RENDER_CPU_SECONDS = 4.0  # bombs must be refused within 5 s (RELIABILITY)
OUT_OF_MEMORY = ("alloc", "memory")  # what OpenCV and onnxruntime say, each in an exception of its own


Reader = Callable[[pictures.Picture], str]


def answer_to(read: Reader, request: forks.Message) -> forks.Message:
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
    cage.allow_cpu(RENDER_CPU_SECONDS)
    document = pictures.open_document(path)
    cage.close_the_door()
    return [_page(read, document, number) for number in pages]


def _page(read: Reader, document: Any, number: int) -> str:
    cage.allow_cpu(RENDER_CPU_SECONDS)
    picture = pictures.picture(document, number)
    if picture is None:
        return ""
    cage.allow_cpu(PAGE_CPU_SECONDS)
    return read(picture)


if __name__ == "__main__":
    logging.disable()  # RapidOCR logs at every turn
    try:
        reading = import_module("documents.parsers.scans.reading")
        reading.warm_up()
    except (ImportError, OSError) as error:  # OSError: a model that is not in its place
        reason = str(error).split("\n")[0]
        forks.serve(0, 1, lambda request: {"unavailable": reason})
    else:
        forks.serve(0, 1, partial(answer_to, reading.read))
