"""Quotation marks that open at a line's start and close lines later: what stands between is another text."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

CLOSED_BY = {"«": "»", "“": "”", '"': '"', "‘": "’"}  # noqa: RUF001
OPENING = "".join(CLOSED_BY)
MAX_QUOTED_LINES = 3_000  # lines of one quotation: beyond, a mark was forgotten
_AFTER = " .,;:)"
_APOSTROPHE = "’"  # noqa: RUF001


def quoted_lines(texts: Sequence[str], begins: Callable[[str, str], bool]) -> Iterator[int]:
    """Yield the numbers of the lines in quotations that begin so; ``begins`` is asked of a line and the one before.

    American bills open each paragraph anew and close the last one only.
    """
    ends: dict[str, list[int]] = {}
    led: dict[str, list[int]] = {}  # where another quotation begins: the one before it is at an end by then
    at = 0
    while at < len(texts):
        text = texts[at]
        stop = at + 1
        if text[:1] in CLOSED_BY and _stays_open(text) and begins(text, texts[at - 1] if at else ""):
            mark = text[0]
            if mark not in ends:
                ends[mark] = [number for number, line in enumerate(texts) if _closes(line, mark)]
                led[mark] = [
                    number
                    for number, (before, line) in enumerate(pairwise(texts), 1)
                    if line[:1] == mark and before[-1:] == ":" and begins(line, before)
                ]
            found = ends[mark]
            place = bisect_left(found, at)
            another = bisect_right(led[mark], at)
            is_forgotten = place == len(found) or (another < len(led[mark]) and led[mark][another] <= found[place])
            if not is_forgotten and found[place] - at < MAX_QUOTED_LINES:
                stop = found[place] + 1
                yield from range(at, stop)
        at = stop


def _stays_open(text: str) -> bool:
    """Tell whether the mark that a line begins with is not closed within it: «Boletín Oficial» is only a name."""
    opening, closing = text[0], CLOSED_BY[text[0]]
    depth = 1
    for sign in text[1:]:
        if sign == closing:
            depth -= 1
        elif sign == opening:
            depth += 1
        if not depth:
            return False
    return True


def _closes(text: str, opening: str) -> bool:
    """Tell whether a line ends a quotation that an earlier one began."""
    closing, bare = CLOSED_BY[opening], text.rstrip(_AFTER)
    if not bare.endswith(closing):
        return False
    if closing == _APOSTROPHE and bare == text and bare[-2:-1] not in _AFTER:
        return False  # of the Member States'
    inner = text[1:] if text.startswith(opening) else text
    if opening == closing:
        return inner.count(closing) % 2 == 1
    return inner.count(closing) > inner.count(opening)
