"""Chunk boundaries: the best place to end a chunk in a window of text.

Among equally good places, a hash of the text around them decides, not their distance from the chunk's start: two splits
that come from different starts soon choose the same place, so that a changed page changes few chunks but its own.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

from embeddings.chunking.markdown_structure import Block, Structure

_CONTEXT = 24  # characters before and after a place that are hashed
_MAX_TRIED = 8
_PARAGRAPH = re.compile(r"\n\n")
_LINE = re.compile(r"\n")
_SENTENCE = re.compile(r"""[.!?]["')\]]*+(?=\s)|\n(?= *+(?:[-|]|[0-9]++[.)]) )""")


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
            end = _first_by_hash(structure, window, _ends(find, structure.text, window.half, window.high))
    low = window.floor + 1
    for find in (_PARAGRAPH, _SENTENCE, _LINE):
        if end < 0:
            end = _settle(structure, window, low, _last(find, structure.text, low, window.high))
    if end < 0:
        end = structure.text.rfind(" ", window.floor + 1, window.high)
    return end if end > window.floor else window.high


def context_hash(text: str, offset: int) -> int:
    """Return a hash of the text around offset, and of nothing else."""
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
    ends = _ends(_LINE, text, max(low, window.half), window.high)
    return min(ends, key=lambda end: context_hash(text, end)) if ends else _last(_LINE, text, low, window.high)


def _first_by_hash(structure: Structure, window: Window, ends: list[int]) -> int:
    """Return the first end, in the order of the hash, that can be settled in the upper half, or -1."""
    ranked = sorted(ends, key=lambda end: context_hash(structure.text, end))
    settled = (_settle(structure, window, window.half, end) for end in ranked[:_MAX_TRIED])
    return next((end for end in settled if end >= 0), -1)


def _ends(find: re.Pattern[str], text: str, low: int, high: int) -> list[int]:
    return [match.end() for match in find.finditer(text, low, high)]


def _last(find: re.Pattern[str], text: str, low: int, high: int) -> int:
    return max(_ends(find, text, low, high), default=-1)


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
