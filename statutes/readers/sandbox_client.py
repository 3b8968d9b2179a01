"""Reading of a statute file in a sandboxed child process (``sandbox_child``): a file gives a canonical law."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from documents.parsers.sandbox.client import SandboxClient, register_cleanup
from jobs.outcomes import StageFailure
from statutes.error_codes import statute_failure
from statutes.readers.file_type import Format
from statutes.structure.model import CanonicalLaw, law_from_json

VERSION = "1"  # of the readers' rules: another version makes other articles of the same bytes
MEMORY_MB, CPU_SECONDS, WALL_SECONDS = 768, 120, 300.0  # a law of 3,000 articles takes 100 MB and 3 s

# Reads pages without text, from 1; an unreadable page is "" or missing.
Scanner = Callable[[Path, Sequence[int]], Mapping[int, str]]

statute_zygote = register_cleanup(SandboxClient("statutes.readers.sandbox_child", MEMORY_MB))


def read_statute(path: Path, *, format: Format, scan: Scanner) -> CanonicalLaw:
    """Return the law of a file. Raises failures with declared codes, what ``scan`` raises, and ``OSError``."""
    with path.open("rb"):
        pass
    response = _request(path, format)
    if "blank" in response:
        scanned = scan(path, response["blank"])
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
            json.dump(scanned, file)
            file.flush()
            response = _request(path, format, scanned=file.name)
    return law_from_json(response["law"])


def _request(path: Path, format: Format, scanned: str | None = None) -> dict[str, Any]:
    request = {"path": str(path.resolve()), "format": format, "scanned": scanned, "cpu_seconds": CPU_SECONDS}
    try:
        response = statute_zygote.request(request, wall_seconds=WALL_SECONDS)
    except StageFailure as failure:  # its detail is about a PDF
        raise statute_failure(failure.code, type(failure)) from None
    if "unreadable" in response:
        raise statute_failure(response["unreadable"])
    return response
