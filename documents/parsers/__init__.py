"""Hostile PDFs in, pages of markdown out: here in a capped child process, or at a vendor's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Literal, Protocol

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from documents.parsers import ocr as ocr_engine
from documents.parsers.outline import tidy
from documents.parsers.refusals import failure
from documents.parsers.zygote import worker_zygote

NAME = "pdf-oxide"
VERSION = f"{version('pdf-oxide')}+1"  # the number is that of the outline's rules

HEADER = b"%PDF-"
HEADER_WITHIN = 1024  # bytes; what readers accept, though the standard wants it first
INSPECT_SECONDS = 28.0  # opening a file repairs it at worst: never worth 30 s
PARSE_SECONDS_PER_FIFTY, PARSE_SECONDS_MOST = 120.0, 600.0  # MVP context §9

Status = Literal["pending", "completed", "failed", "lost"]


@dataclass(frozen=True, slots=True)
class Parser:
    """Who turns a document into markdown. Another configuration of the same parser is another ``version``."""

    name: str
    version: str

    @property
    def is_bought(self) -> bool:
        return self.name != NAME


def chosen(*, ocr: bool) -> Parser:
    """Return the parser that ``settings.PARSER`` names. Raises ``ImproperlyConfigured`` for one that nobody knows."""
    if settings.PARSER == "local":
        return local(ocr=ocr)
    if settings.PARSER == "llamaparse":
        return Parser("llamaparse", f"{settings.LLAMAPARSE_VERSION}+{settings.LLAMAPARSE_TIER}{'.ocr' if ocr else ''}")
    raise ImproperlyConfigured(f"There is no parser {settings.PARSER!r}: use local or llamaparse.")


def local(*, ocr: bool) -> Parser:
    return Parser(NAME, f"{VERSION}.ocr-{ocr_engine.VERSION}" if ocr else VERSION)


@dataclass(frozen=True, slots=True)
class Look:
    """A parse as its vendor shows it. ``pages`` by number from 1, when completed; ``credits`` when the vendor says."""

    status: Status
    pages: dict[int, str]
    failed: tuple[int, ...] = ()
    credits: float | None = None


class ParsingVendor(Protocol):
    """A parser that is asked over the network. Raises what the vendor's client raises: ``vendors.gate`` explains it."""

    def upload(self, path: Path, key: str) -> str: ...
    def submit(self, file_id: str, *, tags: dict[str, str], ocr: bool, pages: int) -> str: ...
    def find(self, tags: dict[str, str], since: datetime) -> str | None: ...
    def find_file(self, key: str) -> str | None: ...
    def look(self, vendor_job_id: str, pages: int) -> Look: ...
    def cancel(self, vendor_job_id: str) -> None: ...
    def forget(self, *, vendor_job_id: str | None, file_id: str | None) -> None: ...


@cache
def bought() -> ParsingVendor:
    """Return the vendor's client; importing its package takes a second and 40 MB, so only who buys does."""
    made: ParsingVendor = import_string("documents.parsers.llamaparse.LlamaParse")()
    return made


@dataclass(frozen=True)
class Inspection:
    """``encrypted`` PDFs that need no password to be opened parse like any other."""

    pages: int
    encrypted: bool


def inspect(path: Path) -> Inspection:
    """Count the pages. Raises ``Permanent`` or ``Retryable``; ``OSError`` when the file itself cannot be read."""
    _require_pdf(path)
    told = worker_zygote.ask({"ask": "inspect", "path": str(path.resolve())}, wall_seconds=INSPECT_SECONDS)
    return Inspection(pages=told["pages"], encrypted=told["encrypted"])


def parse(path: Path, *, pages: int) -> list[str]:
    """One markdown string a page, "" for a blank one. ``pages``, as inspected, sets the deadline. Raises as above."""
    _require_pdf(path)
    told = worker_zygote.ask({"ask": "parse", "path": str(path.resolve())}, wall_seconds=wall_seconds(pages))
    return tidy(told["markdown"])


def require_text(pages: Sequence[str]) -> None:
    """Raises ``Permanent`` when no page has any text: a scan."""
    if not any(page.strip() for page in pages):
        raise failure("NO_TEXT_LAYER")


def wall_seconds(pages: int) -> float:
    """120 s for each fifty pages begun, 10 minutes at most."""
    return min(PARSE_SECONDS_PER_FIFTY * max(1, -(-pages // 50)), PARSE_SECONDS_MOST)


def _require_pdf(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(HEADER_WITHIN)
    if not start:
        raise failure("EMPTY_FILE")
    if HEADER not in start:
        raise failure("NOT_A_PDF")
