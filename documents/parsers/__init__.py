"""PDF parser: hostile PDFs to pages of markdown, in a sandboxed child process.

No Django in here: the children import this package.
"""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from documents.parsers.failures import parse_failure
from documents.parsers.heading_levels import normalize_headings
from documents.parsers.running_headers import remove_headers_footers
from documents.parsers.sandbox.client import pdf_sandbox

NAME = "pdf-oxide"
VERSION = f"{version('pdf-oxide')}+1"  # the number is the version of the heading rules

HEADER = b"%PDF-"
HEADER_WITHIN = 1024  # bytes; readers accept it there, though the standard wants it first
INSPECT_SECONDS = 28.0  # opening a file may repair it: never worth 30 s
PARSE_SECONDS_PER_FIFTY, PARSE_SECONDS_MOST = 120.0, 600.0  # MVP context §9


@dataclass(frozen=True)
class Inspection:
    """``encrypted`` PDFs that need no password to be opened parse like any other."""

    pages: int
    encrypted: bool


def inspect_pdf(path: Path) -> Inspection:
    """Count the pages. Raises ``Permanent`` or ``Retryable``; ``OSError`` when the file itself cannot be read."""
    _require_header(path)
    request = {"ask": "inspect", "path": str(path.resolve())}
    response = pdf_sandbox.request(request, wall_seconds=INSPECT_SECONDS)
    return Inspection(pages=response["pages"], encrypted=response["encrypted"])


def parse_pdf(path: Path, *, pages: int) -> list[str]:
    """Return a markdown string for each page, "" for a blank one; ``pages`` sets the deadline. Raises as above."""
    _require_header(path)
    request = {"ask": "parse", "path": str(path.resolve())}
    markdown = pdf_sandbox.request(request, wall_seconds=parse_timeout(pages))["markdown"]
    return normalize_headings(remove_headers_footers(markdown))


def parse_timeout(pages: int) -> float:
    """Return 120 s for each fifty pages begun, 10 minutes at most."""
    return min(PARSE_SECONDS_PER_FIFTY * max(1, -(-pages // 50)), PARSE_SECONDS_MOST)


def _require_header(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(HEADER_WITHIN)
    if not start:
        raise parse_failure("EMPTY_FILE")
    if HEADER not in start:
        raise parse_failure("NOT_A_PDF")
