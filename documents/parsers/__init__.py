"""Hostile PDFs in, pages of markdown out. Whatever a PDF does, it does to a capped child process.

No Django in here: the children import this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from documents.parsers.errors import parse_failure
from documents.parsers.headings import normalize_headings
from documents.parsers.sandbox.client import pdf_sandbox

NAME = "pdf-oxide"
VERSION = f"{version('pdf-oxide')}+1"  # the number is that of the outline's rules

HEADER = b"%PDF-"
HEADER_WITHIN = 1024  # bytes; what readers accept, though the standard wants it first
INSPECT_SECONDS = 28.0  # opening a file repairs it at worst: never worth 30 s
PARSE_SECONDS_PER_FIFTY, PARSE_SECONDS_MOST = 120.0, 600.0  # MVP context §9


@dataclass(frozen=True)
class Inspection:
    """``encrypted`` PDFs that need no password to be opened parse like any other."""

    pages: int
    encrypted: bool


def inspect_pdf(path: Path) -> Inspection:
    """Count the pages. Raises ``Permanent`` or ``Retryable``; ``OSError`` when the file itself cannot be read."""
    _require_pdf(path)
    told = pdf_sandbox.request({"ask": "inspect", "path": str(path.resolve())}, wall_seconds=INSPECT_SECONDS)
    return Inspection(pages=told["pages"], encrypted=told["encrypted"])


def parse_pdf(path: Path, *, pages: int) -> list[str]:
    """One markdown string a page, "" for a blank one. ``pages``, as inspected, sets the deadline. Raises as above."""
    _require_pdf(path)
    told = pdf_sandbox.request({"ask": "parse", "path": str(path.resolve())}, wall_seconds=parse_timeout(pages))
    return normalize_headings(told["markdown"])


def require_text(pages: Sequence[str]) -> None:
    """Raises ``Permanent`` when no page has any text: a scan."""
    if not any(page.strip() for page in pages):
        raise parse_failure("NO_TEXT_LAYER")


def parse_timeout(pages: int) -> float:
    """120 s for each fifty pages begun, 10 minutes at most."""
    return min(PARSE_SECONDS_PER_FIFTY * max(1, -(-pages // 50)), PARSE_SECONDS_MOST)


def _require_pdf(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(HEADER_WITHIN)
    if not start:
        raise parse_failure("EMPTY_FILE")
    if HEADER not in start:
        raise parse_failure("NOT_A_PDF")
