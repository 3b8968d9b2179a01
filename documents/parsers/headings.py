"""From the headings that pdf-oxide guesses, page by page, to one outline of the document."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from documents.markdown import code_fences
from documents.parsers.headers_footers import remove_headers_footers
from documents.parsers.heading_patterns import (
    LONGEST_WORDS,
    is_lettered,
    is_named,
    is_part,
    is_title,
    number_of,
    starts_lower,
)

LONGEST_JOINED = 4096  # else a page of fragments would be copied over and over
LONGEST_BOLD = 400  # a title with all its marks
CONTENTS_ENTRIES = 3
LABELS = 3  # so many bold paragraphs in a row are a figure's labels or the cells of a table's head
DEEPEST = 6

_MARKS = re.compile(r" {0,3}(#{1,6}+)(?!#)[ \t]*+")
_BOLD = re.compile(r"\*\*[^*\s][^*]*+\*\*(?: ++\*\*[^*\s][^*]*+\*\*)*+")
_BETWEEN_BOLD = re.compile(r"\*\*( ++)\*\*")
_RUN_IN = re.compile(r"(\*\*[^*\s][^*]{0,200}+\*\*) ++(?=[^\W\d_])")
_PROSE = re.compile(r"(?!\d{1,3}[.)] )[\w\"'(\u201c\u2018]")
_LEADER = (". . . .", ".....")
_STOPS = (".", "!", "?", ":", ";")
_CLOSERS = "*_\"'\u201d\u2019)] "


@dataclass(slots=True)
class Outline:
    """Where the headings so far have led: the last chapter's number, and the levels of the last heading
    with a number, of the one that unnumbered ones go below, and of the last `#` line before there was any."""

    chapter: int = 0
    numbered: int = 0
    above: int = 0
    marked: int = 1

    def level(self, title: str, marks: int) -> int:
        """The number of `#` that it gets; ``marks`` is pdf-oxide's guess, 0 for a bold line."""
        number = number_of(title)
        if is_part(title):
            self.chapter, self.numbered, self.above = 0, 0, 1
        elif number and not self._is_item(title, number, marks):
            self.chapter = number[0]
            self.numbered = self.above = min(len(number) + 1, DEEPEST)
        elif number or is_lettered(title):
            self.above = min(self.numbered + 1, DEEPEST) if self.numbered else 2
        elif self.above:
            return min(self.above + 1, DEEPEST)
        else:
            self.marked = marks or self.marked
            return marks or min(self.marked + 1, DEEPEST)
        return self.above

    def _is_item(self, title: str, number: tuple[int, ...], marks: int) -> bool:
        """The "1. Call us" of section 8.2 is not the first chapter, unless it is set as large as one."""
        small = marks not in (1, 2) and not is_named(title)
        return small and bool(self.numbered) and len(number) == 1 and number[0] <= self.chapter


def normalize_headings(pages: Sequence[str]) -> list[str]:
    """The same pages in the same words, without running heads and feet, with headings that a citation can show.

    Takes time linear in the text, whatever it is. Fences and the rows of tables are left alone.
    """
    outline = Outline()
    return [_outlined(page, outline) for page in remove_headers_footers(pages)]


def _outlined(page: str, outline: Outline) -> str:
    if "#" not in page and "**" not in page:
        return page
    contents = _is_contents(page)
    parts: list[str] = []
    done = 0
    for start, end, _ in code_fences.find_code_fences(page):
        parts += (_prose(page[done:start], outline, contents=contents), page[start:end])
        done = end
    return "".join((*parts, _prose(page[done:], outline, contents=contents)))


def _is_contents(page: str) -> bool:
    return sum(line.rstrip("0123456789 ").endswith(_LEADER) for line in page.split("\n")) >= CONTENTS_ENTRIES


def _prose(text: str, outline: Outline, *, contents: bool) -> str:
    """On a page of contents the chapters' titles are entries, not places."""
    lines = _demoted(text.split("\n"), contents=contents)
    if not contents:
        lines = _split(lines)
    promoted = set() if contents else set(_bold_titles(lines))
    for index, line in enumerate(lines):
        marks = _MARKS.match(line)
        if marks or index in promoted:
            title = _unmarked(line)
            lines[index] = f"{'#' * outline.level(title, len(marks[1]) if marks else 0)} {title}"
    return "\n".join(lines)


def _demoted(lines: list[str], *, contents: bool) -> list[str]:
    """Make paragraphs of the headings that are none; a fragment goes back to the end of what it continues."""
    kept: list[str] = []
    last, unfinished = -1, False  # the last line that shows anything, and whether it goes on in the next one
    for line in lines:
        marks = _MARKS.match(line)
        title = _unmarked(line) if marks else line
        false = marks and not is_title(title, shallow=len(marks[1]) < 3)
        entry = marks and contents and bool(number_of(title))
        goes_on = unfinished and not marks and _PROSE.match(line)
        if last >= 0 and (goes_on or (false and starts_lower(title))) and (joined := _joined(kept[last], title, marks)):
            del kept[last + 1 :]
            kept[last] = joined
        else:
            kept.append(title if false or entry else line)
            last = len(kept) - 1 if line.strip() else last
        if line.strip():
            unfinished = bool(false) and len(title.split()) > LONGEST_WORDS
    return kept


def _joined(line: str, rest: str, marks: re.Match[str] | None) -> str | None:
    """The line continued, if it can be: it ends no sentence, and a heading goes on in one of the same size."""
    above = _MARKS.match(line)
    if len(line) > LONGEST_JOINED or line.lstrip().startswith("|") or line.rstrip(_CLOSERS).endswith(_STOPS):
        return None
    if above and (marks is None or above[1] != marks[1]):
        return None
    return f"{line[:-2]} {rest}**" if _is_bold(line) and "*" not in rest else f"{line} {rest}"


def _split(lines: list[str]) -> list[str]:
    """Set numbered titles apart from paragraphs that run on from them."""
    split: list[str] = []
    for index, line in enumerate(lines):
        run_in = _RUN_IN.match(line) if line.startswith("**") and not (index and lines[index - 1].strip()) else None
        title = _unmarked(run_in[1]) if run_in else ""
        if run_in and number_of(title) and is_title(title, shallow=False) and not line[run_in.end()].islower():
            split += (run_in[1], "", line[run_in.end() :])
        else:
            split.append(line)
    return split


def _bold_titles(lines: list[str]) -> list[int]:
    """The bold paragraphs of one line that are titles, without those that are labels."""
    titles: list[int] = []
    run: list[int] = []
    for index, line in enumerate(lines):
        bold = _is_bold(line) and _stands_alone(lines, index)
        if bold and not number_of(_unmarked(line)):
            run.append(index)
        elif line.strip():
            titles += _titles_among(lines, run)
            titles += [index] * (bold and is_title(_unmarked(line), shallow=True))
            run = []
    return titles + _titles_among(lines, run)


def _titles_among(lines: list[str], run: list[int]) -> list[int]:
    """One space between two bold pieces is a gap between two cells, two are a wrapped line."""
    cells = any(len(gap[1]) == 1 for index in run for gap in _BETWEEN_BOLD.finditer(lines[index]))
    return [] if cells or len(run) >= LABELS else [index for index in run if _is_bold_title(_unmarked(lines[index]))]


def _is_bold_title(title: str) -> bool:
    """Stricter than for what pdf-oxide has measured: "40% after deductible" is a cell."""
    capital = title[:1].isalnum() and not next(filter(str.isalpha, title), "").islower()
    return capital and not title.endswith((":", "!")) and is_title(title, shallow=False)


def _stands_alone(lines: list[str], index: int) -> bool:
    return not any(lines[near].strip() for near in (index - 1, index + 1) if 0 <= near < len(lines))


def _is_bold(line: str) -> bool:
    return len(line) <= LONGEST_BOLD and _BOLD.fullmatch(line) is not None


def _unmarked(line: str) -> str:
    """A heading's words, without `#` and without bold all over."""
    marks = _MARKS.match(line)
    line = (line[marks.end() :] if marks else line).strip().lstrip("# \t")
    if _is_bold(line):
        line = _BETWEEN_BOLD.sub(r"\1", line)[2:-2]
    return " ".join(line.split())
