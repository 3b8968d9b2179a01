"""PDF to markdown with LiteParse, or where it fails with pdf-oxide and PDFium. Runs in the sandboxed child only."""

import codecs
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pdf_oxide
import pypdfium2
import pypdfium2.raw as pdfium

from documents.parsers import (
    file_structure,
    form_fields,
    glued_words,
    liteparse_pages,
    reading_order,
    right_to_left,
    vertical_text,
)
from documents.parsers.form_fields import FieldValue
from documents.parsers.liteparse_pages import PageLayout
from documents.parsers.reading_order import Run
from documents.parsers.sandbox import rlimits

REASONS = {pdfium.FPDF_ERR_PASSWORD: "PASSWORD_REQUIRED", pdfium.FPDF_ERR_SUCCESS: "NO_PAGES"}
ENCRYPTION = re.compile(rb"/(?:Encrypt|Standard)\b")  # always in plain text: what is needed to decrypt the rest
WARM_UP_MEMORY_MB = 768  # without a limit PDFium reserves a gigabyte of addresses, which every child would inherit
PAGE_CPU_SECONDS = 4.0  # real pages take 0.01 to 0.3 s; bombs must be refused within 5 s (RELIABILITY)
LAYOUT_CPU_SECONDS = 0.1  # for each page of the document, which LiteParse reads at once
SURVEY_CPU_SECONDS = 0.005  # for each page of the document: at the first one pdf-oxide looks through all of them
LOST_SHARE = 0.5
FOUND_WITHIN = (4.0, 6.0)  # points from the place of a run's first letter, where italics and small letters are
LONG_WORD = re.compile(r"[^\W\d_]{3,}")
# C0 and C1 controls except tab and newline, surrogates, and PDFium's noncharacters at a hyphenated break.
UNCLEAN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

codecs.lookup("utf-16-le")  # pypdfium2's; Python loads codecs from files, and rlimits.forbid_opening_files() ends that
# One page in two fonts, without a cross-reference table, which both engines rebuild.
WARM_UP_PDF = b"""%PDF-1.4
1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj
2 0 obj << /Type /Pages /Kids [3 0 R] /Count 1 >> endobj
3 0 obj << /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R
  /Resources << /Font << /F1 5 0 R /F2 6 0 R >> >> >> endobj
4 0 obj << /Length 92 >> stream
BT /F1 20 Tf 72 720 Td (Heading) Tj /F2 10 Tf 0 -30 Td (Some words, and a few more.) Tj ET          
endstream endobj
5 0 obj << /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold /Encoding /WinAnsiEncoding >> endobj
6 0 obj << /Type /Font /Subtype /TrueType /BaseFont /Arial /Encoding /WinAnsiEncoding >> endobj
trailer << /Size 7 /Root 1 0 R >>
%%EOF
"""


class PdfError(Exception):
    """The document cannot be parsed; ``code`` is a stable reason."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class OpenedPdf:
    """One document in whichever engines could open it."""

    data: bytes
    fium: Any
    count: int
    encrypted: bool
    damage: str  # the error code if no page can be read; determined now, for no file can be opened later

    @cached_property
    def oxide(self) -> Any:
        """The document in pdf-oxide, None if it does not open; most documents never need it."""
        if self.fium and not pdfium.FPDF_DocumentHasValidCrossReferenceTable(self.fium.raw):
            return None  # it finds the objects again, but repeats a page and loses another (0.3.78)
        return _open_oxide(self.data)[0]


@dataclass(frozen=True)
class PlainPage:
    """A page open in PDFium, and its plain text; ``is_final`` where no other engine reads its words better."""

    page: Any
    text_page: Any
    text: str
    values: list[FieldValue]
    is_final: bool
    is_right_to_left: bool

    def sort_runs(self, runs: list[Run]) -> list[Run]:
        """Return the runs in the order in which PDFium reads them, last those that it does not find at their place."""
        height = self.page.get_height()
        places = [
            pdfium.FPDFText_GetCharIndexAtPos(
                self.text_page.raw,
                run.x0 + 0.3 * min(run.height, run.x1 - run.x0),
                height - (run.y0 + run.y1) / 2,
                *FOUND_WITHIN,
            )
            for run in runs
        ]
        return [run for _, run in sorted(zip(places, runs, strict=True), key=lambda pair: (pair[0] < 0, pair[0]))]

    def close(self) -> None:
        """Free the page."""
        self.text_page.close()
        self.page.close()


def open_document(path: Path) -> OpenedPdf:
    """Raise ``PdfError`` if the PDF cannot be opened; an empty user password, which only restricts its use, is fine."""
    rlimits.limit_cpu_time(PAGE_CPU_SECONDS)
    content = path.read_bytes()
    is_truncated = file_structure.is_truncated(content)
    if not is_truncated:
        content = file_structure.without_junk(content) or content
    fium: Any = None
    fium_error: int | None = None
    try:
        fium = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        fium_error = error.err_code  # "success" for a document without pages
    oxide: Any = None
    oxide_count = 0
    if fium is None:
        oxide, oxide_count = _open_oxide(content)
    damage = "PDF_TRUNCATED" if is_truncated else "PDF_MALFORMED"
    if fium is None and not oxide_count:
        reason = REASONS.get(fium_error)
        # Pages that cannot be decrypted look like none.
        raise PdfError(damage if reason is None or (reason == "NO_PAGES" and ENCRYPTION.search(content)) else reason)
    if is_truncated:
        # Both engines rebuild what is left and show the rest as blank pages: the loss would go unnoticed.
        raise PdfError("PDF_TRUNCATED")
    liteparse_pages.shared_parser()
    if fium is None:
        return OpenedPdf(content, None, oxide_count, oxide.permissions() is not None, damage)
    is_encrypted = bool(pdfium.FPDF_GetSecurityHandlerRevision(fium.raw) >= 0)
    return OpenedPdf(content, fium, _page_count(fium, content), is_encrypted, damage)


def warm_up() -> None:
    """Let both engines build their tables of glyphs and fonts once, before the forks, not once a document."""
    pdf_oxide.PdfDocument.from_bytes(WARM_UP_PDF).to_markdown(0, include_images=False)
    fium = pypdfium2.PdfDocument(WARM_UP_PDF)
    fium[0].get_textpage().get_text_bounded()
    with rlimits.limited_memory(WARM_UP_MEMORY_MB):
        liteparse_pages.parse_pages(WARM_UP_PDF)


def extract_markdown(document: OpenedPdf, layouts: dict[int, PageLayout]) -> tuple[list[str], list[int]]:
    """Return a string for each page, "" for an unreadable one, and the pages, from 1, whose order is doubtful.

    A page without a layout, where others have one, is doubtful, too. Raises ``PdfError`` when no page can be read.
    """
    pages, doubtful = [], []
    for number in range(document.count):
        rlimits.limit_cpu_time(PAGE_CPU_SECONDS + (SURVEY_CPU_SECONDS * document.count if number == 0 else 0))
        page, is_doubtful = _extract_page(document, number, layouts.get(number))
        pages.append(page)
        if is_doubtful or (page and layouts and number not in layouts):
            doubtful.append(number + 1)
    if all(page is None for page in pages) or (document.damage == "PDF_TRUNCATED" and not any(pages)):
        raise PdfError(document.damage)  # "needs OCR" would be the wrong advice
    return [page or "" for page in pages], doubtful


def parse_layouts(document: OpenedPdf) -> dict[int, PageLayout]:
    """Return the layout of each page, from 0, that LiteParse can read."""
    rlimits.limit_cpu_time(PAGE_CPU_SECONDS + LAYOUT_CPU_SECONDS * document.count)
    try:
        return liteparse_pages.parse_pages(document.data)
    except MemoryError:
        raise
    except BaseException:  # a Rust panic arrives as a BaseException of its own
        return {}


def _extract_page(document: OpenedPdf, number: int, layout: PageLayout | None) -> tuple[str | None, bool]:
    """Use PDFium first: where it sees no text, pdf-oxide would only decode the page's images, for 20 to 400 ms."""
    page = _open_plain(document.fium, number)
    plain = page.text if page else None
    rich, is_doubtful = plain, False
    if page and layout and page.text and not page.is_final:
        ordered, is_doubtful = reading_order.check_order(
            clean_text(layout.markdown), page.text, layout, lambda: page.sort_runs(layout.runs())
        )
        rich = append_lost_lines(clean_text(ordered), page.text)
    elif page and layout and page.is_right_to_left:
        rich = _render_right_to_left(page, layout) or page.text
    elif not (page and page.is_final):
        rich = clean_text(layout.markdown) if layout else _extract_rich(document.oxide, number)
    if rich is None or sum(map(str.isalnum, rich)) < LOST_SHARE * sum(map(str.isalnum, plain or "")):
        rich = plain
    values = page.values if page else []
    if page:
        if rich and not page.is_final:
            rich = glued_words.separate_words(rich, page.text, glued_words.find_glued_marks(page.text_page))
        page.close()
    return (rich if rich is None else form_fields.append_missing(rich, plain or "", values)), is_doubtful


def _render_right_to_left(page: PlainPage, layout: PageLayout) -> str | None:
    try:
        text = right_to_left.render_page(page.text_page, page.page.get_height(), layout)
    except MemoryError:
        raise
    except Exception:  # as in parse_pages
        return None
    return text and clean_text(text)


def append_lost_lines(rich: str, plain: str) -> str:
    """Return the text with PDFium's lines that it lacks at its end: LiteParse drops some that repeat or overlap."""
    others = LONG_WORD.findall(" ".join(set(plain.split()).difference(rich.split())))
    words = set(LONG_WORD.findall(rich)) if others else set[str]()
    if words.issuperset(others):
        return rich
    letters: str | None = None
    lost = []
    for line in plain.split("\n"):
        expected = LONG_WORD.findall(line)
        if 2 * sum(word not in words for word in expected) > len(expected):
            letters = letters or _letters(rich)
            if _letters(line) not in letters:  # else its words are only split otherwise
                lost.append(line)
    return "\n".join([rich, "", *lost]) if lost else rich


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def _extract_rich(oxide: Any, number: int) -> str | None:
    if oxide is None:
        return None
    try:
        return clean_text(oxide.to_markdown(number, include_images=False, embed_images=False))
    except MemoryError:
        raise
    except BaseException:  # as in parse_layouts
        return None


def _open_plain(fium: Any, number: int) -> PlainPage | None:
    if fium is None:
        return None
    try:
        page = fium[number]
        text_page = page.get_textpage()
        text = clean_text(text_page.get_text_bounded())
        is_reversed = right_to_left.is_right_to_left(text)
        if is_reversed:
            text = clean_text(right_to_left.read_words(text_page))
        vertical = vertical_text.read_columns(text_page) if vertical_text.may_be_vertical(text) else None
        has_annotations = pdfium.FPDFPage_GetAnnotCount(page.raw) > 0
        values = form_fields.read_values(fium, number, page, text_page)
    except pypdfium2.PdfiumError:
        return None
    is_final = vertical is not None or is_reversed or not (text or has_annotations)
    return PlainPage(
        page, text_page, clean_text(vertical) if vertical else text, values, is_final, is_reversed and not vertical
    )


def _open_oxide(data: bytes) -> tuple[Any, int]:
    """Return the document and its page count; None when it does not open, or only as a shell of encrypted content."""
    try:
        oxide = pdf_oxide.PdfDocument.from_bytes(data)
        return (oxide, int(oxide.page_count)) if oxide.authenticate("") else (None, 0)
    except MemoryError:
        raise
    except BaseException:  # as in parse_layouts
        return None, 0


def _page_count(fium: Any, data: bytes) -> int:
    """Return the pages that exist: PDFium repeats /Count, be it a million; pdf-oxide counts."""
    claimed = len(fium)
    try:
        fium.get_page_size(claimed - 1)  # does not read the page's content
    except pypdfium2.PdfiumError:
        _, count = _open_oxide(data)
        return count if 0 < count < claimed else claimed
    return claimed


def clean_text(text: str) -> str:
    """Return text that UTF-8 and PostgreSQL (no NUL) can hold, with one kind of line end."""
    text = UNCLEAN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return "\n".join(line.rstrip() for line in text.split("\n")).strip("\n")
