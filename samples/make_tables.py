"""Benefit tables with questions that one cell answers: HTML sources, their PDFs, and the tables as markdown.

`python -m samples.make_tables` prints the PDFs with Chromium. They are kept: another Chromium prints others.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

SET = Path(__file__).parent / "tables"
QUESTIONS = SET / "questions.jsonl"
STYLE = """<meta charset=utf-8><style>
@page { size: A4; margin: 12mm } body { font: 8.5pt Liberation Sans, Arial, sans-serif }
h1 { font-size: 16pt } h2 { font-size: 12pt; clear: both } caption { text-align: left; font-weight: bold }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; vertical-align: top; padding: 2pt 5pt }
.ruled th, .ruled td { border: 0.6pt solid #444 } .half { float: left; width: 48%; margin-right: 2% }
</style>"""


def print_pdfs() -> None:
    for source in sorted(SET.glob("*.html")):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder, source.name)
            page.write_text(STYLE + source.read_text(encoding="utf-8"), encoding="utf-8")
            options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", "--disable-pdf-tagging"]
            command = ["chromium", *options, f"--print-to-pdf={source.with_suffix('.pdf')}", page.as_uri()]
            subprocess.run(command, check=True, capture_output=True, timeout=60)


def markdown(source: Path) -> str:
    """Return a source as markdown: a spanning cell is repeated, two header rows are joined column by column."""
    reader = _Reader()
    reader.feed(source.read_text(encoding="utf-8"))
    reader.close()
    return "\n\n".join(reader.blocks()) + "\n"


class _Reader(HTMLParser):
    """Reads blocks, and rows of cells with their spans; the sources leave out most end tags."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: list[tuple[str, list[list[_Cell]]]] = []
        self._words: list[str] = []
        self._prefix = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("h1", "h2", "p", "caption", "table"):
            self._end_block()
            self._prefix = {"h1": "# ", "h2": "## "}.get(tag, "")
            if tag == "table":
                self._blocks.append(("", []))
        elif tag == "tr":
            self._end_block()
            self._rows.append([])
        elif tag in ("td", "th"):
            self._end_block()
            spans = dict(attrs)
            self._rows[-1].append(_Cell(tag == "th", int(spans.get("colspan") or 1), int(spans.get("rowspan") or 1)))
            self._words = self._rows[-1][-1].words

    def handle_endtag(self, tag: str) -> None:
        if tag in ("h1", "h2", "p", "caption", "table"):
            self._end_block()

    def handle_data(self, data: str) -> None:
        self._words.append(data)

    @property
    def _rows(self) -> "list[list[_Cell]]":
        return self._blocks[-1][1]

    def _end_block(self) -> None:
        text = " ".join("".join(self._words).split())
        in_cell = bool(self._blocks and self._rows and self._rows[-1] and self._words is self._rows[-1][-1].words)
        if text and not in_cell:
            caption = self._blocks.pop() if self._blocks and self._blocks[-1] == ("", []) else None
            self._blocks += [(self._prefix + text, []), *([caption] if caption else [])]
        self._words, self._prefix = [], ""

    def blocks(self) -> Iterator[str]:
        self._end_block()
        for text, rows in self._blocks:
            yield text or "\n".join(_lines(rows))


class _Cell:
    def __init__(self, is_head: bool, columns: int, rows: int) -> None:
        self.is_head, self.columns, self.rows = is_head, columns, rows
        self.words: list[str] = []

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def _lines(rows: list[list[_Cell]]) -> Iterator[str]:
    grid: dict[tuple[int, int], str] = {}
    for row, cells in enumerate(rows):
        column = 0
        for cell in cells:
            while (row, column) in grid:
                column += 1
            for down, right in product(range(cell.rows), range(cell.columns)):
                grid[row + down, column + right] = cell.text
    width = max(column for _, column in grid) + 1
    table = [[grid.get((row, column), "") for column in range(width)] for row in range(len(rows))]
    heads = sum(all(cell.is_head for cell in cells) for cells in rows)
    yield _line(" ".join(dict.fromkeys(column)) for column in zip(*table[:heads], strict=True))
    yield _line(["---"] * width)
    yield from map(_line, table[heads:])


def _line(cells: "Iterator[str] | list[str]") -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print_pdfs()
