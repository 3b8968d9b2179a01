"""Choosing where a chunk ends: the best place in a window of text."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from embeddings.structure import Block, Structure

_SENTENCE = re.compile(r"""[.!?]["')\]]*+(?=\s)|\n(?= *+(?:[-|]|[0-9]++[.)]) )""")


@dataclass(frozen=True, slots=True)
class Window:
    """Where an end may be: (floor, high]. Below low a heading is not worth an end; above half anything good is."""

    floor: int
    low: int
    half: int
    high: int


def best_end(structure: Structure, window: Window, fits: Callable[[Block], bool]) -> int:
    """Return where to end: before a heading or a block, after a paragraph, sentence, line, word, or anywhere."""
    end = _before_heading(structure, window)
    if end < 0:
        end = _around_block(structure, window, fits)
    for low in (window.half, window.floor + 1):
        for find in (_after_paragraph, _after_sentence, _after_line):
            if end < 0:
                end = _settle(structure, window, low, find(structure.text, low, window.high))
    if end < 0:
        end = structure.text.rfind(" ", window.floor + 1, window.high)
    return end if end > window.floor else window.high


def _before_heading(structure: Structure, window: Window) -> int:
    """Return the highest-ranking heading of the upper half, else the last one above low, else -1."""
    found = list(structure.headings(window.low, window.high + 1))
    found.sort(
        key=lambda heading: (
            heading.start < window.half,
            heading.start >= window.half and heading.level,
            -heading.start,
        )
    )
    for heading in found:
        if structure.heading_above(heading.start, window.floor) < 0:
            return heading.start
    return -1


def _around_block(structure: Structure, window: Window, fits: Callable[[Block], bool]) -> int:
    """Keep the block that the window would cut in one chunk if it fits one, else cut it at a line."""
    high = window.high
    if (fence := structure.fences.around(high)) and fence.start < high:
        before = structure.above_headings(fence.start, window.floor)
        if before > window.floor and (before >= window.half or fits(fence)):
            return before
        return _line_end(structure.text, max(window.floor, fence.start), high)
    if (table := structure.tables.around(high)) and table.start < high:
        before = structure.above_headings(table.start, window.floor)
        if before >= window.half or (before >= window.low and (high <= table.body or fits(table))):
            return before
        row = _line_end(structure.text, max(window.floor, table.body), high)
        return row if row >= 0 else structure.text.rfind("|", window.floor + 1, high)
    return -1


def _after_paragraph(text: str, low: int, high: int) -> int:
    found = text.rfind("\n\n", low, high)
    return found + 2 if found >= 0 else -1


def _after_sentence(text: str, low: int, high: int) -> int:
    end = -1
    for found in _SENTENCE.finditer(text, low, high):
        end = found.end()
    return end


def _after_line(text: str, low: int, high: int) -> int:
    return _line_end(text, low, high)


def _line_end(text: str, low: int, high: int) -> int:
    found = text.rfind("\n", low, high)
    return found + 1 if found >= 0 else -1


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
