"""Markdown structure that matters for splitting: headings, code fences, tables."""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from documents.markdown import normalization

_HEADING = re.compile(r"\n {0,3}#{1,6} ")
_HEADING_HERE = re.compile(r" {0,3}(#{1,6}) ++([^\n]++)")
_DELIMITER = re.compile(r"\n *+(?=[|:-])[ |:-]++(?=\n|\Z)")
_ROWS = re.compile(r"(?:\n(?! {0,3}#{1,6} )[^\n|]*+\|[^\n]*+)*+")
# A page of nothing but headings must not be walked up again for every one of them.
_LONGEST_HEADING_RUN = 16


class Heading(NamedTuple):
    """A heading's line start, its number of `#`, and its title."""

    start: int
    level: int
    title: str


class Block(NamedTuple):
    """A fence or a table; a table's first row starts at body, after its header and delimiter lines."""

    start: int
    body: int
    end: int


@dataclass(slots=True)
class Blocks:
    """Blocks in order of place. Arrays, because a hostile text has a million of them."""

    starts: "array[int]" = field(default_factory=lambda: array("q"))
    bodies: "array[int]" = field(default_factory=lambda: array("q"))
    ends: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, block: Block) -> None:
        """Append a block that starts where the last one ended or later."""
        self.starts.append(block.start)
        self.bodies.append(block.body)
        self.ends.append(block.end)

    def block_at(self, offset: int) -> Block | None:
        """Return the block that the character at offset is in."""
        if not self.starts:
            return None
        index = bisect_right(self.starts, offset) - 1
        if index < 0 or self.ends[index] <= offset:
            return None
        return Block(self.starts[index], self.bodies[index], self.ends[index])

    def first_from(self, offset: int) -> Block | None:
        """Return the first block that starts at offset or later."""
        index = bisect_right(self.starts, offset - 1)
        if index == len(self.starts):
            return None
        return Block(self.starts[index], self.bodies[index], self.ends[index])

    def last_end(self, offset: int) -> int:
        """Return where the last block that ended at offset or before ended, or 0."""
        index = bisect_right(self.ends, offset) - 1
        return self.ends[index] if index >= 0 else 0


class Structure:
    """A text, its blocks, found once, and its headings, found on request."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.fences = Blocks()
        for start, end, _ in normalization.find_code_fences(text):
            self.fences.add(Block(start, start, min(end + 1, len(text))))
        self.tables = Blocks()
        for table in self._find_tables():
            self.tables.add(table)

    def block_around(self, offset: int) -> Block | None:
        """Return the fence or table that the character at offset is in."""
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
