"""Reader of PDFs: lines of pages without running heads and page numbers, column by column. Runs in the child only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Any

import pypdfium2

from documents.parsers import pdf_engines
from documents.parsers.running_headers import remove_headers_footers
from documents.parsers.sandbox import rlimits
from statutes.structure.builder import MAX_TITLE_CHARS, NOTE, TITLE, build_law
from statutes.structure.headings import Outline
from statutes.structure.model import CanonicalLaw, Line, Place

MASK = "\ue000"  # no text has it
EDGE_LINES = 6  # at either edge of a page, among which running lines are looked for
MIN_PAGES, MIN_SHARE = 3, 0.4  # of the pages that have a running line: left and right pages may have different ones
_PAGE_NUMBER = re.compile(
    r"(?:[-–—]\s*)?(?:p(?:[áa]gina|age|[áa]g\.)\s*)?\d{1,4}(?:\s*(?:de|of|/)\s*\d{1,4})?(?:\s*[-–—])?$",  # noqa: RUF001
    re.I,
)
# Lines that gazettes print at the edges of each page: a law of two pages repeats them too seldom to be noticed.
_FURNITURE = re.compile(
    r"(?:BOLET[ÍI]N OFICIAL DEL ESTADO|cve: [A-Z]+-[\w-]+|Verificable en https?://\S+"
    r"|N[úu]m\. \d{1,4} .{5,60}P[áa]g\. \d{1,6}|CVE \d{6,9}(?: \|.*)?|VerDate \w.*|Jkt \d{6} PO \d{5}.*)$"
)
# Columns
MIN_ROWS = 4  # side by side: fewer are a letterhead or signatures
MIN_COLUMN_SHARE = 0.6  # of the jumps to the right that end at one place
PROSE_RATIO = 8.0  # width to height of a line of prose; a table's figures are shorter
RAGGED_POINTS = 3  # by which the lines of a column begin apart: letters have different side bearings
MAX_PIECES = 2_000  # per page: beyond, it is a drawing
_DIGITS = re.compile(r"\d+")
_MARKS = re.compile(r"^#{1,6} |\*\*")


def page_texts(document: pdf_engines.OpenedPdf) -> list[str]:
    """Return the text of each page, "" for one without. Raises ``pdf_engines.PdfError``."""
    if document.fium is None:
        pages, _ = pdf_engines.extract_markdown(document, pdf_engines.parse_layouts(document))
        return ["\n".join(_MARKS.sub("", line) for line in page.split("\n")) for page in pages]
    texts = []
    for number in range(document.count):
        rlimits.limit_cpu_time(pdf_engines.PAGE_CPU_SECONDS)
        try:
            page = document.fium[number]
            text_page = page.get_textpage()
            text = unfold_columns(text_page) or pdf_engines.clean_text(text_page.get_text_bounded())
            text_page.close()
            page.close()
        except pypdfium2.PdfiumError:
            text = ""
        texts.append(text)
    return texts


def read_pdf(pages: Sequence[str], scanned: Mapping[int, str]) -> CanonicalLaw:
    """Return the law of such pages, its places in characters of all texts; ``scanned`` is OCR text by page, from 1."""
    texts = [page if page.strip() else scanned.get(number, "") for number, page in enumerate(pages, 1)]
    return build_law(list(_lines(texts)))


def _lines(pages: Sequence[str]) -> Iterator[Line]:
    offset = 0
    for number, (page, body) in enumerate(zip(pages, _without_edges(pages), strict=True), 1):
        left = iter(body)
        body_line = next(left, None)
        for line in page.split("\n"):
            if line == body_line:
                yield Line(line, Place(offset, offset + len(line), number))
                body_line = next(left, None)
            offset += len(line) + 1


def _without_edges(pages: Sequence[str]) -> list[list[str]]:
    outline = Outline([line.strip() for page in pages for line in page.split("\n")])
    bodies = _without_running_lines(pages, outline)
    removed = Counter[str]()
    for page, lines in zip(pages, bodies, strict=True):
        removed.update((Counter(page.split("\n")) - Counter(lines)).keys())
    running = {_shape(line) for line in removed if line.strip()} | _running_shapes(bodies, outline)
    first = next((number for number, lines in enumerate(bodies) if any(line.strip() for line in lines)), 0)
    trimmed = [_trim(lines, running) for lines in bodies]
    if bodies and not _has_title(trimmed[first], outline):
        titled = _trim(bodies[first], running, keep=_is_title)  # the running head is the law's title
        trimmed[first] = titled if _has_title(titled, outline) else bodies[first]
    if len(pages) > 1:
        for lines in trimmed:
            numbers = {index for index in _edge(lines, 1) if _PAGE_NUMBER.match(lines[index].strip())}
            lines[:] = [line for index, line in enumerate(lines) if index not in numbers]
    return trimmed


def _running_shapes(pages: Sequence[Sequence[str]], outline: Outline) -> set[str]:
    counts: Counter[str] = Counter()
    for lines in pages:
        edge = (lines[index].strip() for index in _edge(lines, EDGE_LINES))
        counts.update({_shape(line) for line in edge if not (outline.heading(line) or NOTE.match(line))})
    fewest = max(MIN_PAGES, MIN_SHARE * sum(any(line.strip() for line in lines) for lines in pages))
    return {shape for shape, count in counts.items() if count >= fewest and any(map(str.isalpha, shape))}


def _without_running_lines(pages: Sequence[str], outline: Outline) -> list[list[str]]:
    """Remove running lines, but no headings: one article a page would look like a running head with a number."""
    masked: dict[str, str] = {}
    texts = []
    for page in pages:
        lines = page.split("\n")
        for index, line in enumerate(lines):
            if outline.heading(line.strip()) or NOTE.match(line.strip()):
                lines[index] = MASK + "".join(chr(ord(digit) + 49) for digit in str(len(masked)))  # "0" becomes "a"
                masked[lines[index]] = line
        texts.append("\n".join(lines))
    return [[masked.get(line, line) for line in page.split("\n")] for page in remove_headers_footers(texts)]


def _trim(lines: list[str], running: set[str], keep: Callable[[str], bool] = lambda line: False) -> list[str]:
    """Remove running lines from the edges inward; between other lines the same words are the law's."""
    visible = [index for index, line in enumerate(lines) if line.strip()]
    dropped: set[int] = set()
    for edge in (visible[: 2 * EDGE_LINES], visible[: -2 * EDGE_LINES - 1 : -1]):
        for index in edge:
            line = lines[index].strip()
            if not (_shape(line) in running or _PAGE_NUMBER.match(line) or _FURNITURE.match(line)):
                break
            if not keep(lines[index]):
                dropped.add(index)
    return [line for index, line in enumerate(lines) if index not in dropped]


def _has_title(lines: list[str], outline: Outline) -> bool:
    return any(_is_title(line) for line in takewhile(lambda line: outline.heading(line.strip()) is None, lines))


def _is_title(line: str) -> bool:
    return len(line.split()) > 1 and TITLE.match(line.strip()[:MAX_TITLE_CHARS]) is not None


def _edge(lines: Sequence[str], most: int) -> set[int]:
    visible = [index for index, line in enumerate(lines) if line.strip()]
    return {*visible[:most], *visible[-most:]}


def _shape(line: str) -> str:
    """Return a running line's common form: without its numbers and its order, which left pages turn round."""
    return " ".join(sorted(_DIGITS.sub("0", line).split()))


@dataclass(frozen=True, slots=True)
class _Piece:
    """The box of a piece of text, in points; the origin is the bottom of the page."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def is_prose(self) -> bool:
        return self.right - self.left >= PROSE_RATIO * (self.top - self.bottom)

    def is_beside(self, other: _Piece) -> bool:
        height = min(self.top - self.bottom, other.top - other.bottom)
        overlap = min(self.top, other.top) - max(self.bottom, other.bottom)
        return overlap > height / 2 and other.left - self.right > height / 2


def unfold_columns(page: Any) -> str | None:
    """Return the text of a PDFium text page column by column; None for a page without interleaved columns."""
    count = page.count_rects()
    if count > MAX_PIECES:
        return None
    pieces = [_Piece(*page.get_rect(number)) for number in range(count)]
    gutter = _gutter(pieces)
    if gutter is None:
        return None
    lines = (
        pdf_engines.clean_text(page.get_text_bounded(piece.left, piece.bottom, piece.right, piece.top))
        for piece in _by_column(pieces, gutter)
    )
    return "\n".join(" ".join(line.split("\n")) for line in lines if line.strip())


def _gutter(pieces: Sequence[_Piece]) -> float | None:
    """Return the left edge of the right column, if the file goes from left to right row by row."""
    jumps = [(piece, other) for piece, other in pairwise(pieces) if piece.is_beside(other)]
    prose = [(piece, other) for piece, other in jumps if piece.is_prose and other.is_prose]
    if len(prose) < MIN_ROWS or len(prose) < MIN_COLUMN_SHARE * len(jumps):
        return None
    lefts = Counter(round(other.left) for _, other in prose)
    place = lefts.most_common(1)[0][0]
    column = [other.left for _, other in prose if abs(other.left - place) <= RAGGED_POINTS]
    return min(column) - 2.0 if len(column) >= MIN_COLUMN_SHARE * len(prose) else None


def _by_column(pieces: Sequence[_Piece], gutter: float) -> Iterator[_Piece]:
    left: list[_Piece] = []
    right: list[_Piece] = []
    for piece in pieces:
        if piece.left < gutter < piece.right:
            yield from (*left, *right, piece)
            left, right = [], []
        else:
            (left if piece.right <= gutter else right).append(piece)
    yield from (*left, *right)
