"""Layout of the sample booklets: styles, page frame, ruled tables."""

from pathlib import Path

from reportlab.lib.colors import HexColor
from reportlab.lib.pagesizes import LETTER
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import inch
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import BaseDocTemplate, Flowable, Frame, PageTemplate, Paragraph, Table
from reportlab.platypus.tableofcontents import TableOfContents

INK, RULE, SHADE = HexColor("#17324d"), HexColor("#7d8b99"), HexColor("#e6edf3")
MARGIN = inch
WIDTH = LETTER[0] - 2 * MARGIN
CELL_PADDING = 4

# pdf-oxide tells a heading by how much larger than the cells and the body it is, and takes one that begins with a
# number ("4.7 Retail") for a list: hence these sizes, and "Section 4.7".
BODY = ParagraphStyle("body", fontName="Times-Roman", fontSize=11, leading=15, spaceAfter=7)
BULLET = ParagraphStyle("bullet", BODY, leftIndent=18, bulletIndent=6, spaceAfter=4)
CELL = ParagraphStyle("cell", fontName="Helvetica", fontSize=9, leading=11.5)
CELL_HEAD = ParagraphStyle("cell head", CELL, fontName="Helvetica-Bold", textColor=INK)
TITLE = ParagraphStyle("title", fontName="Helvetica-Bold", fontSize=24, leading=30, spaceAfter=12, textColor=INK)
HEADINGS = {
    1: ParagraphStyle("h1", fontName="Helvetica-Bold", fontSize=21, leading=26, spaceAfter=12, textColor=INK),
    2: ParagraphStyle(
        "h2",
        fontName="Helvetica-Bold",
        fontSize=14,
        leading=18,
        spaceBefore=12,
        spaceAfter=6,
        textColor=INK,
        keepWithNext=1,
    ),
    3: ParagraphStyle(
        "h3",
        fontName="Helvetica-Bold",
        fontSize=11.5,
        leading=15,
        spaceBefore=6,
        spaceAfter=3,
        textColor=INK,
        keepWithNext=1,
    ),
}
CONTENTS = [
    ParagraphStyle("contents 1", fontName="Helvetica-Bold", fontSize=10, leading=14, spaceBefore=5),
    ParagraphStyle("contents 2", fontName="Helvetica", fontSize=9, leading=12, leftIndent=16),
]
RULED = [
    ("GRID", (0, 0), (-1, -1), 0.6, RULE),
    ("BACKGROUND", (0, 0), (-1, 0), SHADE),
    ("VALIGN", (0, 0), (-1, -1), "TOP"),
    *[(f"{side}PADDING", (0, 0), (-1, -1), CELL_PADDING) for side in ("LEFT", "RIGHT", "TOP", "BOTTOM")],
]


class Booklet(BaseDocTemplate):  # type: ignore[misc]  # reportlab has no types
    """A document with a running head, page numbers, and headings that reach the contents and the outline."""

    def __init__(self, path: Path, *, title: str, form: str, product: str = "Harbor Choice PPO 1500") -> None:
        # Invariant and not compressed: the bytes depend neither on the clock nor on the zlib of this Python.
        super().__init__(
            str(path), pagesize=LETTER, title=title, author="Harbor Mutual Health", invariant=1, pageCompression=0
        )
        self.form, self.product = form, product
        frame = Frame(MARGIN, MARGIN, WIDTH, LETTER[1] - 2 * MARGIN, 0, 0, 0, 0)
        self.addPageTemplates(PageTemplate(frames=[frame], onPage=self.furnish))

    def furnish(self, canvas: Canvas, _: BaseDocTemplate) -> None:
        """Draw the running head and foot of a page."""
        canvas.setFont("Helvetica", 8)
        canvas.setFillColor(RULE)
        canvas.drawString(MARGIN, LETTER[1] - 0.62 * inch, f"Harbor Mutual Health  |  {self.product}")
        canvas.drawRightString(LETTER[0] - MARGIN, LETTER[1] - 0.62 * inch, self.title)
        canvas.line(MARGIN, LETTER[1] - 0.7 * inch, LETTER[0] - MARGIN, LETTER[1] - 0.7 * inch)
        canvas.drawString(MARGIN, 0.6 * inch, self.form)
        canvas.drawRightString(LETTER[0] - MARGIN, 0.6 * inch, f"Page {canvas.getPageNumber()}")

    def afterFlowable(self, flowable: Flowable) -> None:
        level = {"h1": 0, "h2": 1}.get(getattr(getattr(flowable, "style", None), "name", ""))
        if level is None:
            return
        text = flowable.getPlainText()
        key = f"{level}-{text}".replace("'", "")  # the contents parse the key as a Python literal
        self.canv.bookmarkPage(key)
        self.canv.addOutlineEntry(text, key, level=level, closed=True)
        self.notify("TOCEntry", (level, text, self.page, key))


def contents() -> TableOfContents:
    """Return a table of contents of chapters and sections."""
    table = TableOfContents()
    table.levelStyles = CONTENTS
    return table


def ruled(rows: list[list[str]], widths: list[float] | None = None) -> Table:
    """Return a ruled table with a repeated header row; `widths` are shares of the text's width."""
    shares = widths or [1.0] * len(rows[0])
    cells = [[Paragraph(text, CELL if row else CELL_HEAD) for text in line] for row, line in enumerate(rows)]
    columns = [WIDTH * share / sum(shares) for share in shares]
    return Table(cells, colWidths=columns, style=RULED, repeatRows=1, spaceBefore=4, spaceAfter=10)
