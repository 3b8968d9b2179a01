"""Text of a PDF's pages, for the fake LlamaParse."""

import re
from threading import Lock

import pypdfium2

INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_pdfium = Lock()  # PDFium is not thread-safe


def read_pages(content: bytes) -> list[str]:
    """Return a text for each page; raises ValueError when this is no PDF."""
    with _pdfium:
        try:
            document = pypdfium2.PdfDocument(content)
        except pypdfium2.PdfiumError as error:
            raise ValueError(str(error)) from error
        try:
            return [_text(document[number]) for number in range(len(document))]
        finally:
            document.close()


def _text(page: pypdfium2.PdfPage) -> str:
    text = page.get_textpage().get_text_range()
    lines = INVISIBLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).split("\n")
    return "\n".join(line.rstrip() for line in lines).strip()


def parse_page_ranges(ranges: dict[str, object] | None, count: int) -> list[int]:
    """Return the page numbers that `page_ranges` asks for: {"target_pages": "1,3,5-8", "max_pages": 2}."""
    ranges = ranges or {}
    numbers = list(range(1, count + 1))
    if target := ranges.get("target_pages"):
        chosen: set[int] = set()
        for piece in str(target).split(","):
            first, _, last = piece.partition("-")
            chosen.update(range(int(first), int(last or first) + 1))
        numbers = [number for number in numbers if number in chosen]
    most = ranges.get("max_pages")
    return numbers[: int(str(most))] if most else numbers
