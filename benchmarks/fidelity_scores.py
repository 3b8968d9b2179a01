"""Parse fidelity scores of a markdown text against its truth: reading order (NID), tables (TEDS), headings (MHS).

The scores are those of opendataloader-bench (https://github.com/opendataloader-project/opendataloader-bench).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser
from statistics import fmean

from apted import APTED, Config
from rapidfuzz import fuzz
from rapidfuzz.distance import Levenshtein

HTML_TABLE = re.compile(r"<table[^>]*+>.*?</table>", re.IGNORECASE | re.DOTALL)
DELIMITER_ROW = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")
UNESCAPED_PIPE = re.compile(r"(?<!\\)\|")
HEADING = re.compile(r" {0,3}#{1,6}\s+(.*?)\s*#*\s*")


@dataclass
class Node:
    """Node of a tree that APTED compares; ``text`` is compared in ``shape``s that are equal."""

    shape: tuple[str | int, ...]
    text: str = ""
    children: list["Node"] = field(default_factory=list)


class TextDistance(Config):  # type: ignore[misc]  # apted has no types
    """One for another shape, else the normalized edit distance of the texts."""

    def rename(self, node1: Node, node2: Node) -> float:
        """Return the cost of changing one node into the other."""
        return Levenshtein.normalized_distance(node1.text, node2.text) if node1.shape == node2.shape else 1.0


@dataclass(frozen=True)
class Scores:
    """``teds`` and ``mhs`` are None where the truth has no table, no heading."""

    nid: float
    teds: float | None
    mhs: float | None

    @property
    def overall(self) -> float:
        """Return the mean of the scores that the document has."""
        return fmean(score for score in (self.nid, self.teds, self.mhs) if score is not None)


def score(truth: str, markdown: str) -> Scores:
    """Compare a text with its truth; both may have tables as HTML and as pipe tables."""
    expected, found = _tables_as_html(truth), _tables_as_html(markdown)
    return Scores(
        nid=fuzz.ratio(_collapse(expected), _collapse(found)) / 100,
        teds=_compare_trees(_table_tree(expected), _table_tree(found), counted_roots=0),
        mhs=_compare_trees(_section_tree(expected), _section_tree(found), counted_roots=1),
    )


def has_table(markdown: str) -> bool:
    """Tell whether the text has a table."""
    return bool(HTML_TABLE.search(_tables_as_html(markdown)))


def _compare_trees(truth: Node | None, found: Node | None, *, counted_roots: int) -> float | None:
    """Return 1 - distance / nodes of the larger tree; TEDS leaves the root out of that count."""
    if truth is None:
        return None
    if found is None:
        return 0.0
    distance: float = APTED(truth, found, TextDistance()).compute_edit_distance()
    return max(0.0, 1.0 - distance / (counted_roots + max(_descendants(truth), _descendants(found))))


def _descendants(node: Node) -> int:
    return sum(1 + _descendants(child) for child in node.children)


def _collapse(text: str) -> str:
    return " ".join(text.split())


def _tables_as_html(markdown: str) -> str:
    """Return the text with each pipe table as an HTML table."""
    lines, output, index = markdown.split("\n"), [], 0
    while index < len(lines):
        if "|" in lines[index] and index + 1 < len(lines) and _is_delimiter(lines[index + 1]):
            rows = [lines[index]]
            index += 2
            while index < len(lines) and "|" in lines[index]:
                rows.append(lines[index])
                index += 1
            output.append(_html_table([_split_row(row) for row in rows]))
        else:
            output.append(lines[index])
            index += 1
    return "\n".join(output)


def _is_delimiter(line: str) -> bool:
    return "|" in line and bool(DELIMITER_ROW.fullmatch(line))


def _split_row(line: str) -> list[str]:
    cells = UNESCAPED_PIPE.split(line.strip().removeprefix("|").removesuffix("|"))
    return [cell.strip().replace("\\|", "|") for cell in cells]


def _html_table(rows: list[list[str]]) -> str:
    cells = ["".join(f"<td>{escape(cell, quote=False)}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


class TableReader(HTMLParser):
    """Reads the rows and cells of HTML tables into ``tables``."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[Node] = []
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a table, a row or a cell."""
        if tag == "table":
            self.tables.append(Node(("table",)))
        elif tag == "tr" and self.tables:
            self.tables[-1].children.append(Node(("tr",)))
        elif tag in ("td", "th") and self.tables and self.tables[-1].children:
            spans = {name: int(value) for name, value in attrs if value and value.isdigit()}
            shape = ("td", spans.get("colspan", 1), spans.get("rowspan", 1))
            self.tables[-1].children[-1].children.append(Node(shape))
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        """Close a cell."""
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        """Add to the text of the open cell."""
        if self._in_cell:
            cell = self.tables[-1].children[-1].children[-1]
            cell.text = _collapse(f"{cell.text} {data}")


def _table_tree(html: str) -> Node | None:
    reader = TableReader()
    for table in HTML_TABLE.findall(html):
        reader.feed(table)
    return Node(("body",), children=reader.tables) if reader.tables else None


def _section_tree(html: str) -> Node | None:
    """Return headings, all at one level, with the texts below them and without tables; None without a heading."""
    root = Node(("document",))
    for heading, text in _sections(HTML_TABLE.sub(" ", html)):
        content = [Node(("content",), text)] if text else []
        root.children += content if heading is None else [Node(("heading",), heading, content)]
    return root if any(node.shape == ("heading",) for node in root.children) else None


def _sections(text: str) -> Iterator[tuple[str | None, str]]:
    """Yield each heading and the text below it; first None and the text above the first heading."""
    heading: str | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        match = HEADING.fullmatch(line)
        if match:
            yield heading, _collapse(" ".join(lines))
            heading, lines = _collapse(match[1]), []
        else:
            lines.append(line)
    yield heading, _collapse(" ".join(lines))
