"""Reading of a statute file in a sandboxed child process (``reader_fork_server``): a file gives JSON and markdown."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from documents.parsers.sandbox.client import SandboxClient, register_cleanup
from jobs.outcomes import StageFailure
from statutes.error_codes import statute_failure
from statutes.readers.file_type import Format

VERSION = "1"  # of the readers' rules: another version makes other articles of the same bytes
MEMORY_MB, CPU_SECONDS, WALL_SECONDS = 768, 120, 300.0  # a law of 3,000 articles takes 100 MB and 3 s

MAX_RESPONSE_BYTES = 48 << 20  # the text twice, as JSON and as markdown

# Reads pages without text, from 1; an unreadable page is "" or missing.
Scanner = Callable[[Path, Sequence[int]], Mapping[int, str]]

statute_zygote = register_cleanup(
    SandboxClient("statutes.readers.reader_fork_server", MEMORY_MB, max_response_bytes=MAX_RESPONSE_BYTES)
)


@dataclass(frozen=True, slots=True)
class ParsedStatute:
    """``canonical`` is JSON (``schemas/law.schema.json``); ``text`` and ``page_starts`` are its markdown."""

    title: str
    language: str
    canonical: str
    text: str
    page_starts: Sequence[int]


def read_statute(
    path: Path, *, format: Format, scan: Scanner, header: Mapping[str, Any], pages: int = 0
) -> ParsedStatute:
    """Return the statute of a file. Raises failures with declared codes, what ``scan`` raises, and ``OSError``.

    ``header`` is for ``CanonicalLaw.as_json``, ``pages`` for ``render_markdown``.
    """
    with path.open("rb"):
        pass
    request = {"path": str(path.resolve()), "format": format, "header": header, "pages": pages}
    response = _request({**request, "scanned": None})
    if "blank" in response:
        scanned = scan(path, response["blank"])
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
            json.dump(scanned, file)
            file.flush()
            response = _request({**request, "scanned": file.name})
    return ParsedStatute(**response["statute"])


def _request(request: dict[str, Any]) -> dict[str, Any]:
    try:
        response = statute_zygote.request({**request, "cpu_seconds": CPU_SECONDS}, wall_seconds=WALL_SECONDS)
    except StageFailure as failure:  # its detail is about a PDF
        raise statute_failure(failure.code, type(failure)) from None
    if "unreadable" in response:
        raise statute_failure(response["unreadable"])
    return response
