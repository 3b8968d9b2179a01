"""PDFs: the lines of their pages, without running heads and page numbers. Runs in the child only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile

import pypdfium2

from documents.parsers import pdf_engines
from documents.parsers.headers_footers import remove_headers_footers
from documents.parsers.sandbox import rlimits
from statutes.readers import pdf_columns
from statutes.structure.builder import build_law
from statutes.structure.headings import Outline
from statutes.structure.model import Law, Line, Place
from statutes.structure.titles import MAX_TITLE_CHARS, NOTE, TITLE

HIDDEN = "\ue000"  # no text has it
EDGE = 6  # lines at either edge of a page among which running lines are looked for
FEWEST, SHARE = 3, 0.4  # of the pages that a running line is on: the left ones may have another than the right ones
_PAGE_NUMBER = re.compile(
    r"(?:[-–—]\s*)?(?:p(?:[áa]gina|age|[áa]g\.)\s*)?\d{1,4}(?:\s*(?:de|of|/)\s*\d{1,4})?(?:\s*[-–—])?$",  # noqa: RUF001
    re.I,
)
# What gazettes print at the edges of each page: a law of two pages repeats it too seldom to be told by that.
_FURNITURE = re.compile(
    r"(?:BOLET[ÍI]N OFICIAL DEL ESTADO|cve: [A-Z]+-[\w-]+|Verificable en https?://\S+"
    r"|N[úu]m\. \d{1,4} .{5,60}P[áa]g\. \d{1,6}|CVE \d{6,9}(?: \|.*)?|VerDate \w.*|Jkt \d{6} PO \d{5}.*)$"
)
_DIGITS = re.compile(r"\d+")
_MARKS = re.compile(r"^#{1,6} |\*\*")


def page_texts(document: pdf_engines.OpenedPdf) -> list[str]:
    """Return the text of each page, "" for one without. Raises ``engines.Refused``."""
    if document.fium is None:
        return [
            "\n".join(_MARKS.sub("", line) for line in page.split("\n"))
            for page in pdf_engines.extract_markdown(document)
        ]
    return [_text(document, number) for number in range(document.count)]


def read_pdf(pages: Sequence[str], scanned: Mapping[int, str]) -> Law:
    """Return the law of such pages. ``scanned`` has, by page from 1, what OCR read where there is no text.

    Places are characters of all pages' texts, a line's end between any two.
    """
    whole = [page if page.strip() else scanned.get(number, "") for number, page in enumerate(pages, 1)]
    return build_law(list(_lines(whole)))


def _text(document: pdf_engines.OpenedPdf, number: int) -> str:
    rlimits.limit_cpu_time(pdf_engines.PAGE_CPU_SECONDS)
    try:
        page = document.fium[number]
        text = page.get_textpage()
        found = pdf_columns.unfold_columns(text) or pdf_engines.clean_text(text.get_text_bounded())
        text.close()
        page.close()
    except pypdfium2.PdfiumError:
        return ""
    return found


def _lines(pages: Sequence[str]) -> Iterator[Line]:
    at = 0
    for number, (page, kept) in enumerate(zip(pages, _without_edges(pages), strict=True), 1):
        left = list(kept)
        for line in page.split("\n"):
            if left and line == left[0]:
                del left[0]
                yield Line(line, Place(at, at + len(line), number))
            at += len(line) + 1


def _without_edges(pages: Sequence[str]) -> list[list[str]]:
    """Return each page's lines less what repeats at the edges of pages, its first time too, and page numbers."""
    outline = Outline([line.strip() for page in pages for line in page.split("\n")])
    kept = _without_running_lines(pages, outline)
    gone = Counter[str]()
    for page, lines in zip(pages, kept, strict=True):
        gone.update((Counter(page.split("\n")) - Counter(lines)).keys())
    running = {_shape(line) for line in gone if line.strip()} | _running(kept, outline)
    first = next((number for number, lines in enumerate(kept) if any(line.strip() for line in lines)), 0)
    found = [_trimmed(lines, running) for lines in kept]
    if kept and not _is_titled(found[first], outline):
        titled = _trimmed(kept[first], running, but=_is_title)  # its head is the law's title
        found[first] = titled if _is_titled(titled, outline) else kept[first]
    return [_without_number(lines) for lines in found] if len(pages) > 1 else found


def _running(pages: Sequence[Sequence[str]], outline: Outline) -> set[str]:
    """Return what stands at the edges of many pages: in a law of few pages, or with its words in another order."""
    votes: Counter[str] = Counter()
    for lines in pages:
        edge = (lines[index].strip() for index in _edge(lines, EDGE))
        votes.update({_shape(line) for line in edge if not (outline.heading(line) or NOTE.match(line))})
    fewest = max(FEWEST, SHARE * sum(any(line.strip() for line in lines) for lines in pages))
    return {shape for shape, count in votes.items() if count >= fewest and any(map(str.isalpha, shape))}


def _without_running_lines(pages: Sequence[str], outline: Outline) -> list[list[str]]:
    """Leave out what runs, but no heading: one article a page would look like a head that counts."""
    hidden: dict[str, str] = {}
    masked = []
    for page in pages:
        lines = page.split("\n")
        for index, line in enumerate(lines):
            if outline.heading(line.strip()) or NOTE.match(line.strip()):
                lines[index] = HIDDEN + "".join(chr(ord(digit) + 49) for digit in str(len(hidden)))  # "0" becomes "a"
                hidden[lines[index]] = line
        masked.append("\n".join(lines))
    return [[hidden.get(line, line) for line in page.split("\n")] for page in remove_headers_footers(masked)]


def _trimmed(lines: list[str], running: set[str], but: Callable[[str], bool] = lambda line: False) -> list[str]:
    """Leave out what runs from the edges inward: what stands between other lines is the law's, be it the same."""
    shown = [index for index, line in enumerate(lines) if line.strip()]
    dropped: set[int] = set()
    for edge in (shown[: 2 * EDGE], shown[: -2 * EDGE - 1 : -1]):
        for index in edge:
            line = lines[index].strip()
            if not (_shape(line) in running or _PAGE_NUMBER.match(line) or _FURNITURE.match(line)):
                break
            if not but(lines[index]):
                dropped.add(index)
    return [line for index, line in enumerate(lines) if index not in dropped]


def _is_titled(lines: list[str], outline: Outline) -> bool:
    """Tell whether a law's title stands before its first heading."""
    return any(_is_title(line) for line in takewhile(lambda line: outline.heading(line.strip()) is None, lines))


def _is_title(line: str) -> bool:
    return len(line.split()) > 1 and TITLE.match(line.strip()[:MAX_TITLE_CHARS]) is not None


def _without_number(lines: list[str]) -> list[str]:
    edge = _edge(lines, 1)
    return [line for index, line in enumerate(lines) if index not in edge or not _PAGE_NUMBER.match(line.strip())]


def _edge(lines: Sequence[str], most: int) -> set[int]:
    shown = [index for index, line in enumerate(lines) if line.strip()]
    return {*shown[:most], *shown[-most:]}


def _shape(line: str) -> str:
    """What a line has in common with the same one of another page: left and right pages turn it round."""
    return " ".join(sorted(_DIGITS.sub("0", line).split()))
