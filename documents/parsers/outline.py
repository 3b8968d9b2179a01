"""From the headings that pdf-oxide guesses, page by page, to one outline of the document."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from documents import fences
from documents.parsers.running import without_running_lines
from documents.parsers.titles import depth_of, is_lettered, is_part, is_title, starts_lower

LONGEST_JOINED = 4096  # else a page of fragments would be copied over and over
LONGEST_BOLD = 400  # a title with all its marks
CONTENTS_ENTRIES = 3
LABELS = 3  # so many bold paragraphs in a row are a figure's labels or the cells of a table's head
DEEPEST = 6

_MARKS = re.compile(r" {0,3}(#{1,6}+)(?!#)[ \t]*+")
_BOLD = re.compile(r"\*\*[^*\s][^*]*+\*\*(?: ++\*\*[^*\s][^*]*+\*\*)*+")
_BETWEEN_BOLD = re.compile(r"\*\*( ++)\*\*")
_LEADER = (". . . .", ".....")
_STOPS = (".", "!", "?", ":", ";")
_CLOSERS = "*_\"'”’)] "


@dataclass(slots=True)
class Outline:
    """The levels so far: of the last heading with a number, of the one that others go below, of the last `#` line."""

    numbered: int = 0
    above: int = 0
    marked: int = 1

    def level(self, title: str, marks: int) -> int:
        """Where a heading belongs; ``marks`` is pdf-oxide's guess, 0 for a bold line."""
        if is_part(title):
            self.numbered, self.above = 0, 1
        elif depth := depth_of(title):
            self.numbered = self.above = min(depth + 1, DEEPEST)
        elif is_lettered(title):
            self.above = min(self.numbered + 1, DEEPEST) if self.numbered else 2
        elif self.above:
            return min(self.above + 1, DEEPEST)
        else:
            self.marked = marks or self.marked
            return marks or min(self.marked + 1, DEEPEST)
        return self.above


def tidy(pages: Sequence[str]) -> list[str]:
    """The same pages in the same words, without running heads and feet, with headings that a citation can show.

    Takes time linear in the text, whatever it is. Fences and the rows of tables are left alone.
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
        parts += (_prose(page[done:start], outline, contents=contents), page[start:end])
        done = end
    return "".join((*parts, _prose(page[done:], outline, contents=contents)))


def _is_contents(page: str) -> bool:
    """Its chapters are bold lines too, and those are not where the chapters are."""
    return sum(line.rstrip("0123456789 ").endswith(_LEADER) for line in page.split("\n")) >= CONTENTS_ENTRIES


def _prose(text: str, outline: Outline, *, contents: bool) -> str:
    lines = _demoted(text.split("\n"))
    bold = [] if contents else _bold_titles(lines)
    for index in sorted({*bold, *(index for index, line in enumerate(lines) if _MARKS.match(line))}):
        marks = _MARKS.match(lines[index])
        title = _unmarked(lines[index])
        lines[index] = f"{'#' * outline.level(title, len(marks[1]) if marks else 0)} {title}"
    return "\n".join(lines)


def _demoted(lines: list[str]) -> list[str]:
    """Make paragraphs of the headings that are none; a fragment goes back to the end of what it continues."""
    kept: list[str] = []
    for line in lines:
        marks = _MARKS.match(line)
        if not marks or is_title(title := _unmarked(line), shallow=len(marks[1]) < 3):
            kept.append(line)
            continue
        last = len(kept) - 1
        while last >= 0 and not kept[last].strip():
            last -= 1
        if last >= 0 and starts_lower(title) and (joined := _joined(kept[last], title, marks[1])):
            del kept[last + 1 :]
            kept[last] = joined
        else:
            kept.append(title)
    return kept


def _joined(line: str, rest: str, marks: str) -> str | None:
    """The line continued, if it can be: it ends no sentence, and a heading goes on in one of the same size."""
    above = _MARKS.match(line)
    if len(line) > LONGEST_JOINED or line.lstrip().startswith("|") or line.rstrip(_CLOSERS).endswith(_STOPS):
        return None
    if above and above[1] != marks:
        return None
    return f"{line[:-2]} {rest}**" if _is_bold(line) and "*" not in rest else f"{line} {rest}"


def _bold_titles(lines: list[str]) -> list[int]:
    """The bold paragraphs of one line that are titles."""
    shown = [index for index, line in enumerate(lines) if line.strip()]
    titles: list[int] = []
    labels: list[int] = []
    for index in shown:
        bold = _is_bold(lines[index]) and _stands_alone(lines, index)
        title = _unmarked(lines[index]) if bold else ""
        if not bold or depth_of(title):
            titles += _titles_among(lines, labels)
            labels = []
            titles += [index] * (bold and is_title(title, shallow=True))
        else:
            labels.append(index)
    return titles + _titles_among(lines, labels)


def _titles_among(lines: list[str], labels: list[int]) -> list[int]:
    if len(labels) >= LABELS:
        return []
    return [index for index in labels if _is_bold_title(lines[index])]


def _is_bold_title(line: str) -> bool:
    """Stricter than for what pdf-oxide has measured; one space between two bold pieces is a gap between two cells."""
    cells = any(len(gap[1]) == 1 for gap in _BETWEEN_BOLD.finditer(line))
    title = _unmarked(line)
    return not cells and title[:1].isalnum() and title[-1] not in ":!" and is_title(title, shallow=False)


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
