"""Parser choice (``settings.PARSER``), and the interface of a parsing vendor's client."""

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Literal, Protocol, cast

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from documents.parsers import ocr as ocr_engine
from documents.parsers import pdf_parser
from vendors.vendor_account import Vendor

Status = Literal["pending", "completed", "failed", "cancelled", "lost", "malformed"]


@dataclass(frozen=True, slots=True)
class Parser:
    """A parser's identity. Another configuration of the same parser is another ``version``."""

    name: str
    version: str

    @property
    def label(self) -> str:
        return f"{self.name}@{self.version}"


def parser_names() -> list[str]:
    """Return the parsers that a document may be read by here, the configured one first."""
    others = ["local", *(["llamaparse"] if settings.LLAMAPARSE_API_KEY else [])]
    return list(dict.fromkeys([settings.PARSER, *others]))


def configured_parser(*, ocr: bool, name: str | None = None) -> Parser:
    """Return the parser ``name``, by default ``settings.PARSER``; raise ``ImproperlyConfigured`` for an unknown one."""
    name = name or settings.PARSER
    if name == "local":
        return local_parser(ocr=ocr)
    if name == "llamaparse":
        return Parser("llamaparse", f"{settings.LLAMAPARSE_VERSION}+{settings.LLAMAPARSE_TIER}{'.ocr' if ocr else ''}")
    raise ImproperlyConfigured(f"There is no parser {name!r}: use local or llamaparse.")


def local_parser(*, ocr: bool, has_layout: bool = True) -> Parser:
    """Return the local parser, or without ``has_layout`` the one that reads what LiteParse cannot."""
    name, version = pdf_parser.NAME, pdf_parser.VERSION
    if not has_layout:
        # A newer LiteParse may be able to: its version makes the difference for a reparse.
        name, version = pdf_parser.FALLBACK_NAME, f"{pdf_parser.FALLBACK_VERSION}+{name}-{version}"
    return Parser(name, f"{version}.ocr-{ocr_engine.VERSION}" if ocr else version)


def current_parsers(*, ocr: bool, name: str | None = None) -> list[Parser]:
    """Return the parsers whose text a reparse to ``name``, or to the configured parser, leaves as it is."""
    fallback = [local_parser(ocr=ocr, has_layout=False)] if (name or settings.PARSER) == "local" else []
    return [configured_parser(ocr=ocr, name=name), *fallback]


def parser_name(label: str) -> str:
    """Return the name for ``configured_parser`` of a parser's label."""
    return "llamaparse" if label.startswith("llamaparse@") else "local"


@dataclass(frozen=True, slots=True)
class VendorParse:
    """State of a parse at the vendor: ``pages`` by number from 1 once completed, ``credits`` if reported."""

    status: Status
    pages: dict[int, str]
    failed: tuple[int, ...] = ()
    credits: float | None = None


class ParsingClient(Protocol):
    """Client of a parsing vendor. Raises the vendor SDK's errors, which ``vendors.calls`` maps."""

    def upload(self, path: Path, key: str) -> str: ...
    def submit(self, file_id: str, *, tags: dict[str, str], ocr: bool, pages: int) -> str: ...
    def find_job(self, tags: dict[str, str], since: datetime) -> str | None: ...
    def find_file(self, key: str) -> str | None: ...
    def get_parse(self, vendor_job_id: str, pages: int) -> VendorParse: ...
    def cancel(self, vendor_job_id: str) -> None: ...
    def delete_parse(self, *, vendor_job_id: str | None, file_id: str | None) -> bool: ...


@cache
def vendor_client() -> ParsingClient:
    """Return the vendor's client, imported on first use: its package takes a second and 40 MB."""
    return cast(ParsingClient, import_string("documents.parsers.llamaparse_client.LlamaParse")())


def parsing_vendor(part: str = "") -> Vendor:
    """Return the parsing vendor; purchases, "submit", have a circuit breaker of their own."""
    per_minute = settings.LLAMAPARSE_REQUESTS_PER_MINUTE
    return Vendor("llamaparse", settings.LLAMAPARSE_API_KEY, per_minute, part=part, circuits=2)
