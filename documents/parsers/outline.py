"""From the headings that pdf-oxide guesses, page by page, to one outline of the document."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from documents import fences
from documents.parsers.running import without_running_lines

LONGEST_TITLE = 120
LONGEST_SENTENCELESS = 12  # words: below the second level a longer one is the first line of a paragraph
LONGEST_LEAD = 5  # words before a colon
LONGEST_JOINED = 4096  # else a page of fragments would be copied over and over
CONTENTS_ENTRIES = 3
LABELS = 3  # so many bold paragraphs in a row are a figure's labels or the cells of a table's head
DEEPEST = 6

_MARKED = re.compile(r" {0,3}(#{1,6}+)(?!#)[ \t]*+")
_BOLD = re.compile(r"\*\*[^*\s][^*\n]*+\*\*(?: ++\*\*[^*\n]++\*\*)*+")
_CELLS = re.compile(r"\*\* \*\*")  # two spaces are a wrapped line, one is another cell
_DIGITS = re.compile(r"(\d{1,2}(?:\.\d{1,2}){1,4})\.? |(\d{1,2})[.)]? |(?i:chapter|section|article) (\d{1,3}(?:\.\d{1,2})*+)\b")
_LETTER = re.compile(r"[A-Z]\. |(?i:appendix|annex|schedule|exhibit|chapter|section|article) (?:[A-Z]|[IVXLC]+|\d{1,3})\b")
_PART = re.compile(r"(?i:part) (?:[IVX]+|\d{1,2})\b")
_LEADER = (". . . .", ".....")


@dataclass(slots=True)
class Outline:
    """The levels of the headings so far: of the last numbered one, of the last one with a letter, of the last `#`."""

    numbered: int = 0
    above: int = 0
    marked: int = 1

    def level(self, title: str, marks: int) -> int:
        """Where a heading belongs; ``marks`` is pdf-oxide's guess, 0 for a bold line."""
        if _PART.match(title):
            self.numbered, self.above = 0, 1
            return 1
        if depth := _depth(title):
            self.numbered = self.above = min(depth + 1, DEEPEST)
            return self.above
        if _LETTER.match(title):
            self.above = min(self.numbered + 1, DEEPEST) if self.numbered else 2
            return self.above
        if self.above:
            return min(self.above + 1, DEEPEST)
        if marks:
            self.marked = marks
        return marks or min(self.marked + 1, DEEPEST)


def tidy(pages: Sequence[str]) -> list[str]:
    """The same pages, in the same words, without running heads and with headings that can be cited.

    Takes time linear in the text, whatever it is. Fences and table rows are left alone.
    """
    outline = Outline()
    return [_outlined(page, outline) for page in without_running_lines(pages)]


def _outlined(page: str, outline: Outline) -> str:
    if "#" not in page and "**" not in page:
        return page
    contents = _is_contents(page)
    parts: list[str] = []
    done = 0
    for start, end, _ in fences.spans(page):
        parts += (_prose(page[done:start], outline, contents), page[start:end])
        done = end
    parts.append(_prose(page[done:], outline, contents))
    return "".join(parts)


def _prose(text: str, outline: Outline, contents: bool) -> str:
    lines = _demoted(text.split("\n"))
    labels = set() if contents else _labels(lines)
    for index, line in enumerate(lines):
        marks = _MARKED.match(line)
        if marks:
            title = _title(line)
        elif contents or index in labels or not _is_bold_heading(lines, index):
            continue
        else:
            title = _title(line)
        lines[index] = f"{'#' * outline.level(title, len(marks[1]) if marks else 0)} {title}"
    return "\n".join(lines)
