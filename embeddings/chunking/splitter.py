"""Markdown splitter: walks over a text and fits chunk after chunk under the limit of tokens.

A chunk ends before a heading or a block, after a paragraph, a sentence or a line. The end depends on the text near it
alone, not on the chunks before, and among equally good places a hash of the text around them decides: two splits that
come from different starts soon choose the same place, so that a changed page changes few chunks but its own.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from documents.markdown import code_fences
from documents.markdown.structure import are_heads, split_cells
from embeddings import tokenizer

_NONSPACE = re.compile(r"\S")
_SENTENCE_START = re.compile(r"""[.!?]["')\]]*+\s++(?=\S)""")
_LINE_START = re.compile(r"\n\s*+(?=\S)")
_DEEPEST_INDENT = 16  # characters; deeper ones are not worth their tokens
_LONGEST_TITLE = 200  # characters of a heading in a path; a path is repeated in every chunk of a section
_LONGEST_TOKEN = 64  # characters a token on average; only runs of one character fit more of them in a chunk
_SAMPLE = 192  # characters before a chunk that are counted to know how far an overlap reaches
_FEWEST_CHARACTERS = 32  # four bytes each are 128 tokens at most: with any header, that fits
_HEADING = re.compile(r"\n {0,3}#{1,6} ")
_HEADING_HERE = re.compile(r" {0,3}(#{1,6}) ++([^\n]++)")
_DELIMITER = re.compile(r"\n *+(?=[|:-])[ |:-]++(?=\n|\Z)")
_ROWS = re.compile(r"(?:\n(?! {0,3}#{1,6} )[^\n|]*+\|[^\n]*+)*+")
# A page of nothing but headings must not be walked up again for every one of them.
_LONGEST_HEADING_RUN = 16
_NO_CAPTION = (".", ",", ";", "!", "?")
_CONTEXT = 24  # characters before and after a place that are hashed
_MAX_TRIED = 8
_PARAGRAPH = re.compile(r"\n\n")
_LINE = re.compile(r"\n")
_SENTENCE = re.compile(r"""[.!?]["')\]]*+(?=\s)|\n(?= *+(?:[-|]|[0-9]++[.)]) )""")


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """How large chunks are, in tokens. ``target`` is the most for a chunk's whole text: header, overlap and all."""

    target: int
    overlap: int  # repeated from the same section, whole sentences or lines
    small: int  # a heading closer than this to the chunk's start does not end it
    largest_header: int  # a larger table header is not repeated, or hostile tables would multiply


Span = tuple[int, int]  # start and end of a piece of the text


class Heading(NamedTuple):
    start: int
    level: int
    title: str


class Cut(NamedTuple):
    """A chunk: its range, the tokens of its whole text, and the header and title of a table that are repeated in it."""

    start: int
    end: int
    tokens: int
    header: Span | None
    title: Span | None


class Block(NamedTuple):
    """A fence or a table; a table's first row starts at body, after its header and delimiter lines."""

    start: int
    body: int
    end: int


class Blocks:
    """Blocks in order of place. Arrays, because a hostile text has a million of them."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self.starts, self.bodies, self.ends = array("q"), array("q"), array("q")
        for block in blocks:
            self.starts.append(block.start)
            self.bodies.append(block.body)
            self.ends.append(block.end)

    def block_at(self, offset: int) -> Block | None:
        index = bisect_right(self.starts, offset) - 1
        if index < 0 or self.ends[index] <= offset:
            return None
        return Block(self.starts[index], self.bodies[index], self.ends[index])

    def first_from(self, offset: int) -> Block | None:
        index = bisect_right(self.starts, offset - 1)
        if index == len(self.starts):
            return None
        return Block(self.starts[index], self.bodies[index], self.ends[index])


class Structure:
    """A text, its blocks, found once, and its headings, found on request."""

    def __init__(self, text: str) -> None:
        self.text = text
        fences = code_fences.find_code_fences(text)
        self.fences = Blocks(Block(start, start, min(end + 1, len(text))) for start, end, _ in fences)
        self.tables = Blocks(self._find_tables())

    def block_around(self, offset: int) -> Block | None:
        return self.fences.block_at(offset) or self.tables.block_at(offset)

    def headings(self, low: int, high: int) -> Iterator[Heading]:
        """Yield the headings that start in [low, high); a `#` in code or in a table is none."""
        if low == 0 < high and (first := _HEADING_HERE.match(self.text)):
            yield Heading(0, len(first[1]), first[2])
        # One that starts at the last offset is still to be seen whole: indent, marks and space.
        for match in _HEADING.finditer(self.text, max(low - 1, 0), high + 10):
            start = match.start() + 1
            if start < high and not self.block_around(start) and (line := _HEADING_HERE.match(self.text, start)):
                yield Heading(start, len(line[1]), line[2])

    def head_end(self, table: Block) -> int:
        """Return where the head of a table ends, which may have a second line below heads that span columns."""
        heads = self.text[table.start : self.text.index("\n", table.start)]
        end = self.text.find("\n", table.body, table.end) + 1
        return end if end and are_heads(split_cells(self.text[table.body : end]), split_cells(heads)) else table.body

    def heading_above(self, offset: int, floor: int) -> int:
        """Return the line start of the heading right above offset, or -1; nothing before floor counts."""
        end = floor + len(self.text[floor:offset].rstrip())
        line = max(self.text.rfind("\n", floor, end) + 1, floor)
        if line < end and _HEADING_HERE.match(self.text, line) and not self.block_around(line):
            return line
        return -1

    def above_headings(self, offset: int, floor: int) -> int:
        """Return where the headings right above offset start, or offset: nothing should end with them."""
        for _ in range(_LONGEST_HEADING_RUN):
            heading = self.heading_above(offset, floor)
            if heading < 0:
                break
            offset = heading
        return offset

    def _find_tables(self) -> Iterator[Block]:
        done = 0
        for delimiter in _DELIMITER.finditer(self.text):
            above, body = delimiter.start(), delimiter.end() + 1
            if above < done or not {"|", "-"} <= set(delimiter[0]):
                continue
            start = self.text.rfind("\n", done, above) + 1 or done
            if "|" not in self.text[start:above] or self.fences.block_at(start) or self.fences.block_at(above + 1):
                continue
            rows = _ROWS.match(self.text, delimiter.end())
            end = rows.end() + 1 if rows else body
            fence = self.fences.first_from(start)
            done = min(end, len(self.text), fence.start if fence else end)
            yield Block(start, min(body, done), done)


@dataclass(frozen=True, slots=True)
class Window:
    """Range of possible ends: (floor, high]. Headings count from low on, other boundaries from half on."""

    floor: int
    low: int
    half: int
    high: int


def best_boundary(structure: Structure, window: Window, fits: Callable[[Block], bool]) -> int:
    """Return where to end: before a heading or a block, after a paragraph, sentence, line, word, or anywhere."""
    end = _before_heading(structure, window)
    if end < 0:
        end = _around_block(structure, window, fits)
    for find in (_PARAGRAPH, _SENTENCE, _LINE):
        if end < 0:
            ends = _ends(find, structure.text, window.half, window.high)
            ends.sort(key=lambda end: context_hash(structure.text, end))
            settled = (_settle(structure, window, window.half, end) for end in ends[:_MAX_TRIED])
            end = next((end for end in settled if end >= 0), -1)
    low = window.floor + 1
    for find in (_PARAGRAPH, _SENTENCE, _LINE):
        if end < 0:
            last = max(_ends(find, structure.text, low, window.high), default=-1)
            end = _settle(structure, window, low, last)
    if end < 0:
        end = structure.text.rfind(" ", window.floor + 1, window.high)
    return end if end > window.floor else window.high


def context_hash(text: str, offset: int) -> int:
    return crc32(text[max(offset - _CONTEXT, 0) : offset + _CONTEXT].encode("utf-8", "surrogatepass"))


def _before_heading(structure: Structure, window: Window) -> int:
    """Return the highest-ranking heading of the upper half, else the last one above low, else -1."""
    headings = list(structure.headings(window.low, window.high + 1))
    headings.sort(
        key=lambda heading: (
            heading.start < window.half,
            heading.start >= window.half and heading.level,
            context_hash(structure.text, heading.start) if heading.start >= window.half else -heading.start,
        )
    )
    for heading in headings:
        if structure.heading_above(heading.start, window.floor) < 0:
            return heading.start
    return -1


def _around_block(structure: Structure, window: Window, fits: Callable[[Block], bool]) -> int:
    """Keep the block that the window would cut in one chunk if it fits one, else cut it at a line."""
    high = window.high
    if (fence := structure.fences.block_at(high)) and fence.start < high:
        before = structure.above_headings(fence.start, window.floor)
        if before > window.floor and (before >= window.half or fits(fence)):
            return before
        return _line_end(structure.text, max(window.floor, fence.start), window)
    if (table := structure.tables.block_at(high)) and table.start < high:
        before = structure.above_headings(table.start, window.floor)
        if before >= window.half or (before >= window.low and (high <= table.body or fits(table))):
            return before
        row = _line_end(structure.text, max(window.floor, table.body), window)
        return row if row >= 0 else structure.text.rfind("|", window.floor + 1, high)
    return -1


def _line_end(text: str, low: int, window: Window) -> int:
    """Return the line end of the upper half that the hash chooses, else the last one above low, else -1."""
    if ends := _ends(_LINE, text, max(low, window.half), window.high):
        return min(ends, key=lambda end: context_hash(text, end))
    return max(_ends(_LINE, text, low, window.high), default=-1)


def _ends(find: re.Pattern[str], text: str, low: int, high: int) -> list[int]:
    return [match.end() for match in find.finditer(text, low, high)]


def _settle(structure: Structure, window: Window, low: int, end: int) -> int:
    """Move an end out of a block and above headings; -1 if that leaves nothing from low on."""
    if end < 0:
        return -1
    if block := structure.block_around(end):
        if block.end <= window.high:
            end = block.end
        elif block.start > window.floor and end > block.start:
            end = block.start
    end = structure.above_headings(end, window.floor)
    return end if low <= end <= window.high else -1


class Splitter:
    """Walks over one text. `span` is the length of text that fills the target, at the density of the present place."""

    def __init__(self, text: str, sizes: ChunkSizes, *, skipped: Sequence[Span] = (), has_titles: bool = False) -> None:
        self.text = text
        self.sizes = sizes
        self.structure = Structure(text)
        self.path: list[Heading] = []
        self.span = 0
        self._seen = 0
        self._last_start = 0
        self._head: Span = -1, -1
        self._header: tuple[Span, int] = (-1, -1), 0
        self._skipped = [*skipped, (len(text), len(text))][::-1]
        self._begin = 0
        self._has_titles = has_titles
        self.end = len(text[: self._skipped[-1][0]].rstrip())

    def next_start(self, end: int) -> int:
        """Return where what follows end starts, with its indent if a new line does; the text's end if nothing does."""
        match = _NONSPACE.search(self.text, end)
        while match and match.start() >= self._skipped[-1][0]:
            _, self._begin = self._skipped.pop()
            match = _NONSPACE.search(self.text, self._begin)
            self.end = self._begin + len(self.text[self._begin : self._skipped[-1][0]].rstrip())
            end = self._begin
        if not match:
            return self.end
        visible = match.start()
        line = self.text.rfind("\n", end, visible) + 1
        if (line or not end) and visible - line <= _DEEPEST_INDENT:
            return line
        return visible

    def next_chunk(self, at: int) -> Cut:
        """Return the chunk whose new text starts at `at`."""
        for heading in self.structure.headings(self._seen, at + 1):
            while self.path and self.path[-1].level >= heading.level:
                self.path.pop()
            self.path.append(heading._replace(title=heading.title.rstrip("# ")[:_LONGEST_TITLE]))
        self._seen = at + 1
        header, title, used = None, None, 0
        if table := self.structure.tables.block_at(at):
            header, used = self._repeated_header(table, at)
            title, used = self._repeated_title(self._caption(table) or self._nearest_heading(), at, used)
        cut = self._fit(at if header or title else self._overlap_start(at), at, header, title, used)
        if not table and self._holds_table(cut, at):
            title, used = self._repeated_title(self._nearest_heading(), cut.start, 0)
            cut = self._fit(cut.start, at, None, title, used) if title else cut
        self._last_start = at
        return cut

    def _repeated_header(self, table: Block, at: int) -> tuple[Span | None, int]:
        if at < table.body:
            return None, 0
        if self._head[0] != table.start:
            self._head = table.start, self.structure.head_end(table) if self._has_titles else table.body
        header = table.start, self._head[1] if self._head[1] <= at else table.body
        if self._header[0] != header:
            self._header = header, tokenizer.count_tokens(self.text[slice(*header)])
        tokens = self._header[1]
        return (header, tokens) if tokens <= self.sizes.largest_header else (None, 0)

    def _repeated_title(self, title: Span | None, start: int, used: int) -> tuple[Span | None, int]:
        """Return the title, if a chunk from `start` on repeats it, and the tokens of title and header."""
        if not self._has_titles or not title or title[1] > start:
            return None, used
        tokens = used + tokenizer.count_tokens(self.text[slice(*title)])
        return (title, tokens) if tokens <= self.sizes.largest_header else (None, used)

    def _caption(self, table: Block) -> Span | None:
        """Return the line right above a table, unless it is a heading or a sentence."""
        before = self.text[max(table.start - _LONGEST_TITLE, 0) : table.start].rstrip()
        _, newline, line = before.rpartition("\n")
        if not newline or not line or line.endswith(_NO_CAPTION) or "|" in line or _HEADING_HERE.match(line):
            return None
        start = self.text.rfind(line, 0, table.start)
        return None if start < self._begin or self.structure.block_around(start) else (start, table.start)

    def _nearest_heading(self) -> Span | None:
        if not self.path:
            return None
        start = self.path[-1].start
        end = self.text.find("\n", start, start + _LONGEST_TITLE)
        return None if end < 0 else (start, end + (2 if self.text.startswith("\n\n", end) else 1))

    def _holds_table(self, cut: Cut, at: int) -> bool:
        """Return whether the chunk has a table below a heading that stands before it."""
        if not self._has_titles or not self.path or self.path[-1].start >= cut.start:
            return False
        table = self.structure.tables.first_from(at)
        return bool(table and table.start < cut.end and not any(self.structure.headings(at + 1, table.start)))

    def _fit(self, start: int, at: int, header: Span | None, title: Span | None, used: int) -> Cut:
        """Count a sample, guess a window from it, count what that holds, and correct it: once upwards, then down."""
        target, room = self.sizes.target, self.sizes.target - used
        prefix = "".join(self.text[slice(*span)] for span in (title, header) if span)
        # A sample of as many characters as the target has tokens: more would often be counted twice.
        sample_end = min(start + target, self.end)
        last = start, sample_end, tokenizer.count_tokens(prefix + self.text[start:sample_end])
        self.span = max(_FEWEST_CHARACTERS, (sample_end - start) * target // max(last[2] - used, 1))
        reach = self.span * room * 15 // (16 * target)
        fit, grown = (0, 0, 0), False
        while True:
            if (at - start) * 3 > reach:
                start = at
            start, end = self._choose(start, at, start + reach, room)
            count = -1
            if start == last[0] and last[1]:  # builds on the last try, which saves reading it all again
                count = tokenizer.recount_tokens(self.text, start, last[1], end, last[2])
            if count < 0:
                count = tokenizer.count_tokens(prefix + self.text[start:end])
            last = start, end, count
            guess = (end - start) * room * 15 // (16 * max(count - used, 1))
            if count <= target:
                fit = max(fit, (end, start, count))
                if grown or end >= self.end or guess * 3 < reach * 4:
                    break
                reach, grown = min(guess, reach * 4), True
            elif fit[0]:
                break
            else:
                reach, grown = max(min(guess, (end - start) * 7 // 8), _FEWEST_CHARACTERS), True
        return Cut(fit[1], fit[0], fit[2], header, title)

    def _choose(self, start: int, at: int, limit: int, room: int) -> tuple[int, int]:
        """Return the best start and end of a chunk that may reach limit."""
        if limit >= self.end:
            return start, self.end
        for blocks in (self.structure.fences, self.structure.tables):
            block = blocks.first_from(at)
            if not block or not block.start <= limit < block.end:
                continue
            # A block that a chunk holds, with the headings above it, is not cut.
            if self.structure.above_headings(block.start, at) == at and self._fits(block._replace(start=at), room):
                return at, at + len(self.text[at : min(block.end, self.end)].rstrip())
        reach = limit - start
        # A remainder smaller than an overlap would be a stub.
        high = max(min(limit, self.end - self.span * self.sizes.overlap // self.sizes.target), at + 1)
        half = max(start + reach // 2, at + 1)
        low = max(start + reach * self.sizes.small // self.sizes.target, at + 1)
        end = best_boundary(self.structure, Window(at, low, half, high), self._fits)
        return start, at + len(self.text[at:end].rstrip())

    def _fits(self, block: Block, room: int = 0) -> bool:
        size, room = block.end - block.start, room or self.sizes.target
        return size <= _LONGEST_TOKEN * room and tokenizer.fits_in_tokens(self.text[block.start : block.end], room)

    def _overlap_start(self, at: int) -> int:
        """Return where the last whole sentences or lines before `at` start within its section, outside other blocks."""
        structure = self.structure
        section = self.path[-1].start if self.path else 0
        fence = structure.fences.block_at(at)
        floor = max(self._last_start + 1, section, fence.start if fence else 0, self._begin)
        for blocks in (structure.fences, structure.tables):
            if ended := bisect_right(blocks.ends, at):
                floor = max(floor, blocks.ends[ended - 1])
        if floor < at:
            # Sentences are whole, so the first one that does not fit leaves about the target.
            before = self.text[max(at - _SAMPLE, 0) : at]
            longest = len(before) * self.sizes.overlap * 5 // (4 * max(tokenizer.count_tokens(before), 1))
            floor = max(floor, at - longest)
        if floor >= at:
            return at
        match = _LINE_START.search(self.text, floor - 1, at)
        line = match.end() if match else at
        match = None if fence else _SENTENCE_START.search(self.text, floor - 1, at)
        sentence = match.end() if match else at
        return sentence if at - sentence >= (at - floor) // 2 else min(line, sentence)
