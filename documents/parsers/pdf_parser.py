"""PDF parser: hostile PDFs to pages of markdown, in a sandboxed child process."""

import os
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from documents.parsers.continued_tables import join_cut_rows
from documents.parsers.failures import parse_failure
from documents.parsers.heading_levels import normalize_headings
from documents.parsers.running_headers import remove_headers_footers
from documents.parsers.sandbox.client import CPU_SECONDS, pdf_sandbox
from jobs.outcomes import StageFailure

NAME = "liteparse"
# The number is that of our rules: tables, headings, form values, unreadable pages.
VERSION = f"{version('liteparse')}+8"
FALLBACK_NAME, FALLBACK_VERSION = "pdf-oxide", version("pdf-oxide")  # reads what LiteParse cannot

HEADER = b"%PDF-"
HEADER_WITHIN = 1024  # bytes; readers accept it there, though the standard wants it first
INSPECT_SECONDS = 28.0  # opening a file may repair it: never worth 30 s
PARSE_SECONDS_PER_FIFTY = 120.0  # MVP context §9, as its limits of ten minutes and 200 pages
PARSE_SECONDS_MOST = float(os.environ.get("PARSE_SECONDS_MOST", "600"))
PAGES_PARSED_AT_ONCE = 50  # by the child that counts them: well under a second
PAGES_PER_CPU_LIMIT = 200  # PDF_CPU_SECONDS are for so many pages


@dataclass(frozen=True)
class Inspection:
    """``encrypted`` PDFs that need no password to be opened parse like any other."""

    pages: int
    encrypted: bool


@dataclass(frozen=True, slots=True)
class ParsedPdf:
    """A markdown string for each page, "" for a blank one, and the pages, from 1, whose text is not to be relied on.

    ``doubtful``: the reading order may be wrong, or garbage was left out. ``unreadable``: the text layer has no
    readable text; their markdown is "". ``has_layout``: LiteParse has read it; otherwise it crashed or failed, and
    pdf-oxide and PDFium did.
    """

    markdown: list[str]
    doubtful: list[int]
    unreadable: list[int]
    has_layout: bool = True


def inspect_pdf(path: Path) -> Inspection:
    """Count the pages. Raises ``Permanent`` or ``Retryable``; ``OSError`` when the file itself cannot be read."""
    _require_header(path)
    request = {"ask": "inspect", "path": str(path.resolve())}
    response = pdf_sandbox.request(request, wall_seconds=INSPECT_SECONDS)
    return Inspection(pages=response["pages"], encrypted=response["encrypted"])


def inspect_and_parse(path: Path) -> tuple[Inspection, ParsedPdf | None, float]:
    """Count the pages, and parse a small document in the same child; return the seconds of the parsing too.

    The result is None for a larger document, or one that ends the child: then ``parse_pdf`` tells why. Raises as above.
    """
    _require_header(path)
    request = {"ask": "parse", "path": str(path.resolve()), "max_pages": PAGES_PARSED_AT_ONCE}
    try:
        response = pdf_sandbox.request(request, wall_seconds=INSPECT_SECONDS)
    except StageFailure:
        return inspect_pdf(path), None, 0.0
    inspection = Inspection(pages=response["pages"], encrypted=response["encrypted"])
    return inspection, _parsed(response) if "markdown" in response else None, response["parse_seconds"]


def parse_pdf(path: Path, *, pages: int) -> ParsedPdf:
    """Return the document's text page by page; ``pages`` sets the deadline. Raises as above."""
    _require_header(path)
    request = {"ask": "parse", "path": str(path.resolve()), "cpu_seconds": cpu_limit(pages)}
    # About one damaged file of two thousand ends LiteParse by a signal.
    response = pdf_sandbox.request(request, wall_seconds=parse_timeout(pages), after_crash={"with_layout": False})
    return _parsed(response)


def _parsed(response: dict[str, Any]) -> ParsedPdf:
    markdown = normalize_headings(join_cut_rows(remove_headers_footers(response["markdown"])))
    return ParsedPdf(markdown, response["doubtful"], response["unreadable"], response["has_layout"])


def parse_timeout(pages: int) -> float:
    """Return 120 s for each fifty pages begun, PARSE_SECONDS_MOST at most."""
    return min(PARSE_SECONDS_PER_FIFTY * max(1, -(-pages // 50)), PARSE_SECONDS_MOST)


def cpu_limit(pages: int) -> int:
    """Return PDF_CPU_SECONDS for each 200 pages begun: only a deployment that raises MAX_PAGES reads more."""
    return CPU_SECONDS * max(1, -(-pages // PAGES_PER_CPU_LIMIT))


def _require_header(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(HEADER_WITHIN)
    if not start:
        raise parse_failure("EMPTY_FILE")
    if HEADER not in start:
        raise parse_failure("NOT_A_PDF")
