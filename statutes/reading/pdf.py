"""PDFs: the lines of their pages, without running heads and page numbers. Runs in the child only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pypdfium2

from documents.parsers import cage, engines
from documents.parsers.running import without_running_lines
from statutes.building import LONGEST_TITLE, TITLE, build
from statutes.canonical import Law, Line, Place
from statutes.outline import Outline
from statutes.reading import columns

HIDDEN = "\ue000"  # no text has it
EDGE = 4  # lines at either edge of a page among which running lines are looked for
_PAGE_NUMBER = re.compile(
    r"(?:[-–—]\s*)?(?:p(?:[áa]gina|age|[áa]g\.)\s*)?\d{1,4}(?:\s*(?:de|of|/)\s*\d{1,4})?(?:\s*[-–—])?$",  # noqa: RUF001
    re.I,
)
_DIGITS = re.compile(r"\d+")
_MARKS = re.compile(r"^#{1,6} |\*\*")


def texts(document: engines.Opened) -> list[str]:
    """Return the text of each page, "" for one without. Raises ``engines.Refused``."""
    if document.fium is None:
        return ["\n".join(_MARKS.sub("", line) for line in page.split("\n")) for page in engines.markdown(document)]
    return [_text(document, number) for number in range(document.count)]


def read(pages: Sequence[str], scanned: Mapping[int, str]) -> Law:
    """Return the law of such pages. ``scanned`` has, by page from 1, what OCR read where there is no text.

    Places are characters of all pages' texts, a line's end between any two.
    """
    whole = [page if page.strip() else scanned.get(number, "") for number, page in enumerate(pages, 1)]
    return build(list(_lines(whole)))


def _text(document: engines.Opened, number: int) -> str:
    cage.allow_cpu(engines.PAGE_CPU_SECONDS)
    try:
        page = document.fium[number]
        text = page.get_textpage()
        found = columns.unfolded(text) or engines.clean(text.get_text_bounded())
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
    kept = _without_running_lines(pages)
    gone = Counter[str]()
    for page, lines in zip(pages, kept, strict=True):
        gone.update((Counter(page.split("\n")) - Counter(lines)).keys())
    running = {_shape(line) for line in gone if line.strip()}
    first = next((number for number, lines in enumerate(kept) if any(line.strip() for line in lines)), 0)
    found = [_trimmed(lines, running) for lines in kept]
    if kept and not any(TITLE.match(line.strip()[:LONGEST_TITLE]) for line in found[first]):
        found[first] = kept[first]  # its head is the law's title
    return [_without_number(lines) for lines in found] if len(pages) > 1 else found


def _without_running_lines(pages: Sequence[str]) -> list[list[str]]:
    """Leave out what runs, but no heading: one article a page would look like a head that counts."""
    outline = Outline([line for page in pages for line in page.split("\n")])
    hidden: dict[str, str] = {}
    masked = []
    for page in pages:
        lines = page.split("\n")
        for index, line in enumerate(lines):
            if outline.heading(line.strip()):
                lines[index] = HIDDEN + "".join(chr(ord(digit) + 49) for digit in str(len(hidden)))  # "0" becomes "a"
                hidden[lines[index]] = line
        masked.append("\n".join(lines))
    return [[hidden.get(line, line) for line in page.split("\n")] for page in without_running_lines(masked)]


def _trimmed(lines: list[str], running: set[str]) -> list[str]:
    edge = _edge(lines, EDGE)
    return [line for index, line in enumerate(lines) if index not in edge or _shape(line) not in running]


def _without_number(lines: list[str]) -> list[str]:
    edge = _edge(lines, 1)
    return [line for index, line in enumerate(lines) if index not in edge or not _PAGE_NUMBER.match(line.strip())]


def _edge(lines: list[str], most: int) -> set[int]:
    shown = [index for index, line in enumerate(lines) if line.strip()]
    return {*shown[:most], *shown[-most:]}


def _shape(line: str) -> str:
    """What a line has in common with the same one of another page."""
    return _DIGITS.sub("0", " ".join(line.split()))
