"""Headings of parsed pages, set to the levels of one outline."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from documents.markdown.code_fences import split_code_fences

MAX_TITLE_CHARS = 120
MAX_TITLE_WORDS = 12  # of an unnumbered title below the second level; a longer one is a paragraph's first line
MAX_LEAD_WORDS = 5  # before a colon
MAX_JOINED_CHARS = 4096  # else a page of fragments would be copied over and over
MAX_BOLD_CHARS = 400  # a title with all its marks
CONTENTS_ENTRIES = 3
LABELS = 3  # so many bold paragraphs in a row are a figure's labels or the cells of a table's head
DEEPEST = 6

_MARKS = re.compile(r" {0,3}(#{1,6}+)(?!#)[ \t]*+")
_BOLD = re.compile(rf"\*\*(?=.{{,{MAX_BOLD_CHARS - 2}}}\Z)[^*\s][^*]*+\*\*(?: ++\*\*[^*\s][^*]*+\*\*)*+")
_BETWEEN_BOLD = re.compile(r"\*\*( ++)\*\*")
_RUN_IN = re.compile(r"(\*\*[^*\s][^*]{0,200}+\*\*) ++(?=[^\W\d_])")
_PROSE = re.compile(r"(?!\d{1,3}[.)] )[\w\"'(\u201c\u2018]")
_LEADER = (". . . .", ".....")
_STOPS = (".", "!", "?", ":", ";")
_CLOSERS = "*_\"'\u201d\u2019)] "

_NUMBER = re.compile(r"(\d{1,2}(?:\.\d{1,2}){0,4})[.):]? ++(?=[^\W\d_]|[\"'(\u201c\u2018])")
_NAMED = re.compile(
    r"(?:chapter|section|article|appendix|annex|schedule|exhibit) (\d{1,3}(?:\.\d{1,2}){0,4})\b", re.IGNORECASE
)
_CHAPTER = re.compile(r"(?i:chapter|article|appendix|annex|schedule|exhibit) (?:[IVXLC]{1,7}|[A-Z])\b")
_PART = re.compile(r"(?i:part) (?:[IVX]{1,5}|\d{1,2})\b")  # "Part II" is above the chapters
# "A. Changes" and "Part A" are below a numbered section, or chapters where there is none.
_LETTERED = re.compile(r"[A-Z][.)] |(?i:part|section) [A-Z]\b")
_OPENERS = "\"'\u201c\u2018([*_ "
_ENUMERATED = re.compile(r"\(?[a-z]{1,4}[.)] ")


@dataclass(slots=True)
class Outline:
    """State of the outline while the headings are read in order.

    The last chapter's number, and the levels of the last numbered heading, of the heading above unnumbered ones, and of
    the last `#` line before any of those.
    """

    chapter: int = 0
    numbered: int = 0
    above: int = 0
    marked: int = 1

    def level(self, title: str, marks: int) -> int:
        """Return the heading's level and update the state; ``marks`` is pdf-oxide's guess, 0 for a bold line."""
        number = title_number(title)
        # The "1. Call us" of section 8.2 is not the first chapter, unless it is set as large as one.
        is_small = marks not in (1, 2) and not (_NAMED.match(title) or _CHAPTER.match(title))
        is_item = is_small and bool(self.numbered) and len(number) == 1 and number[0] <= self.chapter
        if _PART.match(title):
            self.chapter, self.numbered, self.above = 0, 0, 1
        elif number and not is_item:
            self.chapter = number[0]
            self.numbered = self.above = min(len(number) + 1, DEEPEST)
        elif number or _LETTERED.match(title):
            self.above = min(self.numbered + 1, DEEPEST) if self.numbered else 2
        elif self.above:
            return min(self.above + 1, DEEPEST)
        else:
            self.marked = marks or self.marked
            return marks or min(self.marked + 1, DEEPEST)
        return self.above


def normalize_headings(pages: Sequence[str]) -> list[str]:
    """Return the pages with headings at the levels of one outline.

    The words stay the same; code fences and table rows are left alone. Takes time linear in the text, whatever it is.
    """
    outline, normalized = Outline(), []
    for page in pages:
        leaders = sum(line.rstrip("0123456789 ").endswith(_LEADER) for line in page.split("\n"))
        is_contents = leaders >= CONTENTS_ENTRIES  # where the chapters' titles are entries
        parts: list[str] = []
        for prose, fence, _ in split_code_fences(page):
            lines = _demote_false_headings(prose.split("\n"), is_contents=is_contents)
            lines = lines if is_contents else _split_run_in_titles(lines)
            titles = set() if is_contents else _find_bold_titles(lines)
            for index, line in enumerate(lines):
                marks = _MARKS.match(line)
                if marks or index in titles:
                    title = _strip_marks(line)
                    lines[index] = f"{'#' * outline.level(title, len(marks[1]) if marks else 0)} {title}"
            parts += ("\n".join(lines), fence)
        normalized.append("".join(parts))
    return normalized


def title_number(title: str) -> tuple[int, ...]:
    """Return (8, 2) for "8.2 Therapy" and "Section 8.2", (0,) for a chapter with a letter, "Appendix B", else ()."""
    if _CHAPTER.match(title):
        return (0,)
    number = _NAMED.match(title) or _NUMBER.match(title)
    if not number or starts_lower(title[number.end() :]):
        return ()
    return tuple(map(int, number[1].split(".")))


def is_title(text: str, *, shallow: bool) -> bool:
    """Tell whether the text is neither a fragment nor a sentence; a ``shallow`` heading (level 1, 2) may be long."""
    if len(text) > MAX_TITLE_CHARS or starts_lower(text) or text.endswith((";", ",")):
        return False
    if sum(map(str.isalnum, text)) < 2 or not any(map(str.isalpha, text)):
        return False
    words = len(text.split())
    if text.endswith((".", ":")):
        # Set as large as a chapter's title, one may end so, too
        return words <= (MAX_TITLE_WORDS if shallow else MAX_LEAD_WORDS) and (shallow or text.endswith(":"))
    return shallow or words <= MAX_TITLE_WORDS or bool(title_number(text))


def starts_lower(text: str) -> bool:
    """Tell whether the first word is all lower case; those of "eHealth" and "a. Hospitals" are not."""
    enumerator = _ENUMERATED.match(text)
    word = text[enumerator.end() if enumerator else 0 :].lstrip(_OPENERS).split(maxsplit=1)[:1]
    return bool(word) and word[0][:1].islower() and word[0] == word[0].lower()


def _demote_false_headings(lines: list[str], *, is_contents: bool) -> list[str]:
    """Make paragraphs of false headings; a fragment is joined to the line that it continues."""
    output: list[str] = []
    last, unfinished = -1, False  # the last visible line, and whether it continues in the next one
    for line in lines:
        marks = _MARKS.match(line)
        title = _strip_marks(line) if marks else line
        is_false = marks and not is_title(title, shallow=len(marks[1]) < 3)
        is_entry = marks and is_contents and bool(title_number(title))
        continues = not marks and _PROSE.match(line) and (unfinished or (last >= 0 and _is_lead(output[last], line)))
        joined = None
        if last >= 0 and (continues or (is_false and starts_lower(title))):
            joined = _join_lines(output[last], title, marks)
        if joined:
            del output[last + 1 :]
            output[last] = joined
        else:
            output.append(title if is_false or is_entry else line)
            last = len(output) - 1 if line.strip() else last
        if line.strip():
            unfinished = bool(is_false) and len(title.split()) > MAX_TITLE_WORDS
    return output


def _is_lead(line: str, rest: str) -> bool:
    """Tell whether a bold line is the first one of a paragraph, of which LiteParse made one of its own."""
    is_bold = line.startswith("**") and line.find("*", 2) == len(line) - 2
    return is_bold and len(line.split()) > MAX_TITLE_WORDS and starts_lower(rest)


def _join_lines(line: str, rest: str, marks: re.Match[str] | None) -> str | None:
    """Return the continued line; None if it ends a sentence, or is a heading and the rest has another size."""
    above = _MARKS.match(line)
    if len(line) > MAX_JOINED_CHARS or line.lstrip().startswith("|") or line.rstrip(_CLOSERS).endswith(_STOPS):
        return None
    if above and (marks is None or above[1] != marks[1]):
        return None
    if marks is None and _is_lead(line, rest):
        return f"{line[2:-2]} {rest}"
    return f"{line[:-2]} {rest}**" if _BOLD.fullmatch(line) and "*" not in rest else f"{line} {rest}"


def _split_run_in_titles(lines: list[str]) -> list[str]:
    output: list[str] = []
    for index, line in enumerate(lines):
        run_in = _RUN_IN.match(line) if line.startswith("**") and not (index and lines[index - 1].strip()) else None
        title = _strip_marks(run_in[1]) if run_in else ""
        if run_in and title_number(title) and is_title(title, shallow=False) and not line[run_in.end()].islower():
            output += (run_in[1], "", line[run_in.end() :])
        else:
            output.append(line)
    return output


def _find_bold_titles(lines: list[str]) -> set[int]:
    """Return the bold paragraphs of one line that are titles and not labels."""
    titles: set[int] = set()
    run: list[tuple[int, str]] = []  # consecutive bold paragraphs without numbers
    padded = ["", *lines, "", "."]  # the last paragraph ends the last run
    for index, line in enumerate(padded):
        is_bold = _BOLD.fullmatch(line) and not (padded[index - 1].strip() or padded[index + 1].strip())
        title = _strip_marks(line) if is_bold else ""
        if is_bold and not title_number(title):
            run.append((index - 1, title))
            continue
        if not line.strip():
            continue
        if is_bold and is_title(title, shallow=True):
            titles.add(index - 1)
        # In a run stricter rules apply: "40% after deductible" is a cell.
        for number, words in run if len(run) < LABELS else ():
            # One space between two bold pieces is a gap between two cells, two are a wrapped line.
            if any(len(gap[1]) == 1 for each, _ in run for gap in _BETWEEN_BOLD.finditer(lines[each])):
                break
            is_capital = words[:1].isalnum() and not next(filter(str.isalpha, words), "").islower()
            if is_capital and not words.endswith((":", "!")) and is_title(words, shallow=False):
                titles.add(number)
        run = []
    return titles


def _strip_marks(line: str) -> str:
    """Return a heading's words, without `#` and without bold all over."""
    marks = _MARKS.match(line)
    line = (line[marks.end() :] if marks else line).strip().lstrip("# \t")
    if _BOLD.fullmatch(line):
        line = _BETWEEN_BOLD.sub(r"\1", line)[2:-2]
    return " ".join(line.split())
