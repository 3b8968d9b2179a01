"""Quotations over several lines: marks that open at a line's start and close at the end of a later line."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

CLOSED_BY = {"«": "»", "“": "”", '"': '"', "‘": "’"}  # noqa: RUF001
OPENING = "".join(CLOSED_BY)
MAX_QUOTED_LINES = 3_000  # beyond, a closing mark was forgotten
_AFTER = " .,;:)"
_APOSTROPHE = "’"  # noqa: RUF001


def quoted_lines(texts: Sequence[str], begins: Callable[[str, str], bool]) -> Iterator[int]:
    """Yield the numbers of the lines in quotations for which ``begins(first_line, line_before)`` is true."""
    ends: dict[str, list[int]] = {}  # American bills open each paragraph again and close the last one only
    starts: dict[str, list[int]] = {}  # after a colon another quotation begins: the one before it has ended by then
    number = 0
    while number < len(texts):
        text = texts[number]
        stop = number + 1
        if text[:1] in CLOSED_BY and _stays_open(text) and begins(text, texts[number - 1] if number else ""):
            mark = text[0]
            if mark not in ends:
                ends[mark] = [at for at, line in enumerate(texts) if _closes(line, mark)]
                starts[mark] = [
                    at
                    for at, (before, line) in enumerate(pairwise(texts), 1)
                    if line[:1] == mark and before[-1:] == ":" and begins(line, before)
                ]
            place = bisect_left(ends[mark], number)
            end = ends[mark][place] if place < len(ends[mark]) else len(texts) + MAX_QUOTED_LINES
            place = bisect_right(starts[mark], number)
            is_unclosed = place < len(starts[mark]) and starts[mark][place] <= end
            if not is_unclosed and end - number < MAX_QUOTED_LINES:
                stop = end + 1
                yield from range(number, stop)
        number = stop


def _stays_open(text: str) -> bool:
    """Tell whether the mark at a line's start is not closed within the line: «Boletín Oficial» is only a name."""
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
    closing, bare = CLOSED_BY[opening], text.rstrip(_AFTER)
    if not bare.endswith(closing):
        return False
    if closing == _APOSTROPHE and bare == text and bare[-2:-1] not in _AFTER:
        return False  # of the Member States'
    inner = text[1:] if text.startswith(opening) else text
    if opening == closing:
        return inner.count(closing) % 2 == 1
    return inner.count(closing) > inner.count(opening)
