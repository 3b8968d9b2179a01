"""Reading order of a page: the engine's text checked against PDFium's, and the page rebuilt where the two disagree.

The text runs of a PDF mostly stand in its content stream as they are to be read, and PDFium keeps that order. An engine
that orders lines by their places on the page can tear columns apart. Standard library only.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from statistics import median
from typing import Any, NamedTuple, Protocol

GRAM = 5  # words
NEAR = 12  # words that a hyphen, a footnote mark or a cell may shift the text by
FEW_WORDS = 40  # of a page outside of its tables: too few to tell whether they are in order
TEARS = 2  # one may be a running head that the stream has elsewhere
AGREEMENT = 0.8  # of a page's word 5-grams; below it one of the two orders is wrong
COVERAGE = 0.93  # of a page's words; below it the engine has lost text
BACKWARD_SHARE = 0.03  # of the steps from run to run: a head or a footnote that the stream has first or last
SAME_SIZE = 0.12
COLUMN_GAP = 2.0  # heights of a line
PROSE_CHARS = 25  # of a column's line
WIDEST_SPACE = 0.12
PARAGRAPH_GAP = 0.35  # of a line's height beyond the usual space between lines
PROSE_CELL = 4  # words
LONGEST_CELL = 300  # words; Korean and Chinese characters count as such
MANY_ROWS = 3
TITLE_GAP = 0.45
COLUMN_LINES = 10  # of text that are read across the gap between two columns
RUN_WORDS = 40_000  # a page with more is no page of a document: comparing it takes seconds

_WORD = re.compile(
    r"[^\W_\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_TABLE = re.compile(r"((?:^ *\|.*\n?)+)", re.MULTILINE)
_MARKER = re.compile(r"(?:[•‣\u2043◦∙▪▫●○■□►▸\uf0b7\uf0a7*\u2013-]|[(]?(?:\d{1,2}|[a-zA-Z]|[ivx]{1,4})[.)])\s+\S")
_SECTION = re.compile(r"(?:\d{1,2}\.\d{1,2}\.?|(?i:chapter|section|article|part) [\dIVX]+)\s")
_ENDS = (".", "!", "?", ":", ";", "\u3002", "\u061f")
_CLOSERS = "*_\"'\u201d\u2019)] "


class Run(NamedTuple):
    """A piece of a line: text, box in points from the top left, font."""

    text: str
    x0: float
    y0: float
    x1: float
    y1: float
    size: float
    is_bold: bool

    @property
    def height(self) -> float:
        """Return the height of the box."""
        return self.y1 - self.y0

    def lies_in(self, box: "Region") -> bool:
        """Tell whether the middle of the run is inside of the box."""
        x, y = (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2
        return box.x0 - 1 <= x <= box.x1 + 1 and box.y0 - 1 <= y <= box.y1 + 1


@dataclass(frozen=True, slots=True)
class Region:
    """A table or a heading that the engine found: its box, and the markdown that stands for it."""

    x0: float
    y0: float
    x1: float
    y1: float
    markdown: str
    level: int = 0  # of a heading


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a page's text compares with PDFium's.

    ``coverage``: the share of PDFium's words that the page has. ``agreement``: the share of the page's word 5-grams,
    tables apart, that PDFium has, too. ``tears``: the places where the page goes on elsewhere in PDFium's text.
    """

    coverage: float
    agreement: float
    tears: int

    @property
    def is_complete(self) -> bool:
        """Tell whether the engine has kept the words."""
        return self.coverage >= COVERAGE

    @property
    def is_in_order(self) -> bool:
        """Tell whether both have the words in one order."""
        return self.agreement >= AGREEMENT and self.tears < TEARS


class Layout(Protocol):
    """What the engine found on a page."""

    def headings(self) -> list[Region]:
        """Return the headings."""

    def tables(self) -> list[Region]:
        """Return the tables."""


def check_order(markdown: str, plain: str, layout: Layout, stream_runs: Callable[[], list[Run]]) -> tuple[str, bool]:
    """Return the page's text, in the order of the content stream where the engine tears it, and whether it is doubtful.

    ``plain``: PDFium's text. ``stream_runs`` is called only where the two disagree.
    """
    comparison, tables = compare(markdown, plain), layout.tables()
    is_wordy = any(_is_wordy(table.markdown) for table in tables)
    if comparison.is_in_order and comparison.is_complete and not is_wordy:
        return markdown, False
    runs = stream_runs()
    false_tables = [table for table in tables if _is_prose(table, runs)]
    if comparison.is_in_order and comparison.is_complete and not false_tables:
        return markdown, False
    tables = [table for table in tables if table not in false_tables]
    prose = " ".join(_TABLE.split(markdown)[::2])
    is_doubtful = comparison.agreement < AGREEMENT and not false_tables and len(split_words(prose)) > FEW_WORDS
    if not tables:
        runs = read_columns(runs)
    if is_plausible([run for run in runs if not any(run.lies_in(table) for table in tables)]):
        rebuilt = rebuild(runs, layout.headings(), tables)
        if _coverage(split_words(rebuilt), split_words(plain)) >= min(comparison.coverage, COVERAGE):
            return rebuilt, is_doubtful
    return (markdown, is_doubtful) if comparison.is_complete else (plain, True)


def compare(markdown: str, plain: str) -> Comparison:
    """Compare a page's markdown with the plain text of the same page."""
    parts = _TABLE.split(markdown) if "|" in markdown else [markdown]
    expected, pieces = split_words(plain), [split_words(piece) for piece in parts]
    parsed, prose = list(chain.from_iterable(pieces)), pieces[::2]
    if parsed == expected:  # two pages of three
        return Comparison(1.0, 1.0, 0)
    if not expected or len(expected) > RUN_WORDS or len(parsed) > RUN_WORDS:
        return Comparison(1.0, 1.0, 0)
    grams = Counter(_grams(expected))
    own = Counter(chain.from_iterable(map(_grams, prose)))
    agreement = _count_shared(own, grams) / own.total() if own else 1.0
    return Comparison(_coverage(parsed, expected), agreement, _count_tears(pieces, grams, expected))


def split_words(text: str) -> list[str]:
    """Return the words in small letters; of scripts without spaces, the characters."""
    return (_ASCII_WORD if text.isascii() else _WORD).findall(text.lower())


def is_plausible(runs: Sequence[Run]) -> bool:
    """Tell whether runs in this order read down a column and on to the top of the next one."""
    backward = 0.0
    for before, after in pairwise(runs):
        height = max(before.height, after.height)
        is_beside = abs((before.y0 + before.y1) - (after.y0 + after.y1)) < 0.8 * height
        if is_beside:
            is_apart = after.x0 - before.x1 > COLUMN_GAP * height or after.x1 <= before.x0
            # A line of prose read on across the gap between two columns; a label's value stands apart, too.
            backward += is_apart and min(len(before.text), len(after.text)) > PROSE_CHARS
        elif after.y1 < before.y0 + 0.3 * height and after.x0 < before.x1 - 1:
            backward += 1
    return backward <= 1 + BACKWARD_SHARE * len(runs)


def read_columns(runs: list[Run]) -> list[Run]:
    """Return the runs, two columns of text that they cross line by line, as the text layers of scans do, one by one."""
    crossings = [
        (before, after)
        for before, after in pairwise(runs)
        if after.x0 > before.x1 and abs((before.y0 + before.y1) - (after.y0 + after.y1)) < 0.8 * before.height
    ]
    if len(crossings) < COLUMN_LINES:
        return runs
    height = median(run.height for run in runs)
    # Most of the lines in the right column begin at one place.
    edge = height * (Counter(round(after.x0 / height) for _, after in crossings).most_common(1)[0][0] - 0.5)
    crossed = [pair for pair in crossings if pair[0].x1 < edge + height / 2 and pair[1].x0 > edge - height / 2]
    if len(crossed) < COLUMN_LINES:
        return runs
    top, bottom = crossed[0][0].y0 - height / 2, crossed[-1][1].y1 + height / 2
    above, left, right, below = list[Run](), list[Run](), list[Run](), list[Run]()
    for run in runs:
        if run.y0 < top or run.y1 > bottom:
            (above if run.y0 < top else below).append(run)
        elif run.x0 < edge - height and run.x1 > edge + height:
            return runs
        else:
            (left if run.x0 + run.x1 < 2 * edge else right).append(run)
    sides = [_to_lines((run, None) for run in side) for side in (left, right)]
    if min(sum(len(line.text) >= PROSE_CHARS for line in side) for side in sides) < COLUMN_LINES:
        return runs
    return above + left + right + below


def rebuild(runs: Sequence[Run], headings: Sequence[Region], tables: Sequence[Region]) -> str:
    """Return the markdown of a page whose runs are in reading order; a table stands where it begins.

    Runs within the box of a table whose words it lacks are prose: an engine's table may have lost them.
    """
    parts: list[str] = []
    prose: list[Run] = []
    seen: set[int] = set()
    words = [set(split_words(table.markdown)) for table in tables]
    for run in runs:
        table = next(
            (
                number
                for number, table in enumerate(tables)
                if run.lies_in(table) and words[number].issuperset(split_words(run.text))
            ),
            None,
        )
        if table is None:
            prose.append(run)
        elif table not in seen:
            parts += _paragraphs(prose, headings)
            parts.append(tables[table].markdown)
            prose = []
            seen.add(table)
    return "\n\n".join(parts + _paragraphs(prose, headings))


def split_title(runs: Sequence[Run]) -> list[list[Run]]:
    """Return the titles that an engine took for one: each begins after a space, in another size or with a number."""
    lines = _to_lines((run, None) for run in runs)
    titles: list[list[Run]] = []
    for number, line in enumerate(lines):
        before = lines[number - 1]
        is_first = not number or abs(before.size - line.size) > SAME_SIZE * before.size
        if is_first or line.y0 - before.y1 > TITLE_GAP * (line.y1 - line.y0) or _SECTION.match(line.text):
            titles.append([])
        titles[-1] += line.runs
    return titles


def _coverage(parsed: Sequence[str], expected: Sequence[str]) -> float:
    return _count_shared(Counter(expected), Counter(parsed)) / len(expected) if expected else 1.0


def _count_shared(one: Counter[Any], other: Counter[Any]) -> int:
    """Return how many elements two multisets have in common, some three times as fast as ``(one & other).total()``."""
    common = one.keys() & other.keys()
    return sum(map(min, map(one.__getitem__, common), map(other.__getitem__, common)))


def _grams(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(GRAM)), strict=False)


def _count_tears(pieces: Sequence[Sequence[str]], times: Counter[tuple[str, ...]], expected: Sequence[str]) -> int:
    """``pieces``: the words of prose and of tables in turns."""
    # What is said twice says nothing of the order.
    places = {gram: place for place, gram in enumerate(_grams(expected)) if times[gram] == 1}
    tears, last = 0, -1
    for number, piece in enumerate(pieces):
        shifts = [(places[gram], places[gram] - index) for index, gram in enumerate(_grams(piece)) if gram in places]
        if number % 2 == 0:
            tears += sum(abs(after - before) > NEAR for (_, before), (_, after) in pairwise(shifts))
        first = min((place for place, _ in shifts), default=last)
        tears += TEARS * (first < last - NEAR)  # a table that stands in the wrong place
        last = max(first, last)
    return tears


def _is_prose(table: Region, runs: Sequence[Run]) -> bool:
    """Tell whether the stream reads down a "table" of long cells column by column: those are columns of prose."""
    cells = _cells(table.markdown)
    if any(len(split_words(cell)) > LONGEST_CELL for row in cells for cell in row):
        return True
    rows = sum(sum(map(bool, row)) > 1 for row in cells)
    if rows < MANY_ROWS or not _is_wordy(table.markdown):
        return False
    inside = [run for run in runs if run.lies_in(table)]
    across = sum(after.x0 - before.x1 > 0.8 * before.height for before, after in pairwise(inside))
    return across < 0.5 * rows


def _is_wordy(table: str) -> bool:
    filled = [len(split_words(cell)) for row in _cells(table) for cell in row if cell]
    return bool(filled) and sum(filled) >= PROSE_CELL * len(filled)


def _cells(table: str) -> list[list[str]]:
    return [[cell.strip(" -") for cell in line.strip("|").split("|")] for line in table.split("\n")]


class _TextLine:
    """Runs that stand side by side and are read one after another."""

    def __init__(self, run: Run, heading: Region | None) -> None:
        self.runs = [run]
        self.heading = heading
        self.x0, self.y0, self.x1, self.y1 = run.x0, run.y0, run.x1, run.y1
        self.text = run.text.strip()

    def takes(self, run: Run, heading: Region | None) -> bool:
        """Tell whether the run continues the line."""
        height = max(self.y1 - self.y0, run.height)
        is_beside = abs((self.y0 + self.y1) - (run.y0 + run.y1)) < 0.9 * height
        return is_beside and heading is self.heading and run.x0 - self.x1 > -0.3 * height

    def add(self, run: Run) -> None:
        """Append the run's text, after a space if there is one on the page."""
        gap = (
            run.x0 - self.x1 > WIDEST_SPACE * run.height or self.runs[-1].text.endswith(" ") or run.text.startswith(" ")
        )
        self.text = f"{self.text}{' ' if gap else ''}{run.text.strip()}"
        self.runs.append(run)
        self.x1, self.y0, self.y1 = run.x1, min(self.y0, run.y0), max(self.y1, run.y1)

    @property
    def size(self) -> float:
        """Return the size of most of its letters."""
        return max(self.runs, key=lambda run: len(run.text)).size

    @property
    def is_bold(self) -> bool:
        """Tell whether all of it is bold."""
        return all(run.is_bold for run in self.runs)


def _to_lines(runs: Iterable[tuple[Run, Region | None]]) -> list[_TextLine]:
    """Return the lines of runs in reading order, each given with the heading that it is part of."""
    lines: list[_TextLine] = []
    for run, heading in runs:
        if lines and lines[-1].takes(run, heading):
            lines[-1].add(run)
        else:
            lines.append(_TextLine(run, heading))
    return lines


def _paragraphs(runs: Sequence[Run], headings: Sequence[Region]) -> list[str]:
    lines = _to_lines(
        (run, next((each for each in headings if run.lies_in(each) and is_part(run.text, each.markdown)), None))
        for run in runs
    )
    spaces = [
        after.y0 - before.y1 for before, after in pairwise(lines) if 0 <= after.y0 - before.y1 < after.y1 - after.y0
    ]
    usual = median(spaces) if spaces else 0.0
    paragraphs: list[list[_TextLine]] = []
    for line in lines:
        if paragraphs and _continues(paragraphs[-1][-1], line, usual):
            paragraphs[-1].append(line)
        else:
            paragraphs.append([line])
    return [_render(paragraph) for paragraph in paragraphs]


def is_part(text: str, whole: str) -> bool:
    """Tell whether the words of the text are among those of the whole, in their order."""
    return "".join(split_words(text)) in "".join(split_words(whole))


def _continues(before: _TextLine, after: _TextLine, usual: float) -> bool:
    """Tell whether the line continues the paragraph of the one before."""
    if before.heading is not after.heading:
        return False
    if before.heading is not None:
        return True
    height = after.y1 - after.y0
    if (
        abs(before.size - after.size) > SAME_SIZE * before.size
        or _MARKER.match(after.text)
        or before.is_bold != after.is_bold
    ):
        return False
    is_below = before.y0 < after.y0 and before.x0 < after.x1 and after.x0 < before.x1
    if is_below:
        return after.y0 - before.y1 <= usual + PARAGRAPH_GAP * height
    # On to the next column
    return not before.text.rstrip(_CLOSERS).endswith(_ENDS) and not after.text[:1].isupper()


def _render(paragraph: Sequence[_TextLine]) -> str:
    text = paragraph[0].text
    for line in paragraph[1:]:
        is_broken = len(text) > 1 and text.endswith(("-", "\u00ad")) and text[-2].islower() and line.text[:1].islower()
        text = text[:-1] + line.text if is_broken else f"{text} {line.text}"
    heading = paragraph[0].heading
    if heading is not None:
        return f"{'#' * max(heading.level, 1)} {text}"
    if text.startswith(("#", "|", ">")):
        return f"\\{text}"
    return f"**{text}**" if paragraph[0].is_bold and len(paragraph) == 1 and "*" not in text else text
