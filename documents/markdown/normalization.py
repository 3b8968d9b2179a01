"""Normalization of parsed markdown before it is stored, hashed and chunked: the nine rules of MVP context §10."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

# Rule 8: control and format characters, CGJ, lone surrogates. Arabic number signs are format characters that print.
_UNPRINTED = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001-\U000e007f]+"
)
_LINE_ENDS = ("\r\n", "\r", "\v", "\f", "\x85", "\u2028", "\u2029")
_SPACES = "\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"

# Lookbehinds instead of a leading repeat: a long run of spaces that ends in a letter must be scanned once.
_TRAILING = re.compile(r"(?<![ \t])[ \t]++(?=\n|\Z)")
_INDENT = re.compile(r"\n[ \t]++")
_GAP = re.compile(r" (?<=[^ \n] ) ++")
_BLANKS = re.compile(r"\n{3,}+")
_HEADING = re.compile(r"(\n {0,3}#{1,6}+)(?=[^ #\n])")

# A backtick fence may not have backticks in its info string: that line is inline code.
_FENCE_LINE = re.compile(r"^ *+(`{3,}+(?=[^`\n]*+$)|~{3,}+)([^\n]*+)$", re.MULTILINE)

# Glyphs that PDFs draw before an item; the last two are Symbol's and Wingdings', which extraction leaves private.
_GLYPHS = "•‣\u2043◦∙·▪▫●○■□►▸\uf0b7\uf0a7"
# A line of nothing but marks is a rule (`* * *`) or an empty item: rewriting it as an item would not be idempotent.
_ITEM = re.compile(rf"\n( *+)(?![-*+_ {_GLYPHS}]*+(?:\n|\Z))(?:[*+-] |[{_GLYPHS}] ?|([0-9]{{1,9}}[.)] ))")
_PARAGRAPH = re.compile(r"\n\n(?=[^ \n])")
_TOKEN = re.compile(r"\\[^`\n]|`++|!?\[|\]\(?|[()]")
_TARGET = re.compile(r"""\s*+(?:<[^<>]*+>|\S*+)(?:\s++(?:"[^"]*+"|'[^']*+'|\([^()]*+\)))?+\s*+""")
_PLAIN_IMAGE = re.compile(r"!\[[^\[\]()]*+\]\([^\[\]()\s]*+\)(?!\()")
_PLAIN_LINK = re.compile(r"(\[[^\[\]()]*+\])\([^\[\]()\s]*+\)(?!\()")
# A target with parentheses or brackets inside is scanned again for each pair around it; one without, once.
_LONGEST_NESTED_TARGET = 2000


@dataclass(frozen=True, slots=True)
class NormalizedPages:
    """A document's normalized text, and for each page the offset of its first character there.

    A page without text has the offset of the next one that has some, or the length of the text.
    """

    text: str
    page_starts: tuple[int, ...]


def normalize(text: str) -> str:
    """Apply the nine rules of MVP context §10; idempotent. Text without a visible line gives ""."""
    return _normalize(text)[0]


def normalize_pages(pages: Sequence[str]) -> NormalizedPages:
    """Normalize each page and join them by a blank line; a fence left open at a page's end is closed there."""
    bodies = [f"{body}{closer}\n" if closer else body for body, closer in map(_normalize, pages)]
    text = "\n".join(filter(None, bodies))
    starts: list[int] = []
    start = end = len(text)
    for body in reversed(bodies):
        if body:
            start = end - len(body)
            end = start - 1
        starts.append(start)
    return NormalizedPages(text, tuple(reversed(starts)))


def page_at(page_starts: Sequence[int], offset: int) -> int:
    """Return the page, from 1, of the character at ``offset``; of pages with one start, only the last has text."""
    return max(bisect_right(page_starts, offset), 1)


def _normalize(text: str) -> tuple[str, str]:
    """Return the normalized text and the line that would close the fence it leaves open."""
    text = _UNPRINTED.sub("", text)
    for line_end in _LINE_ENDS:
        text = text.replace(line_end, "\n")
    if not text.isascii():
        for space in _SPACES:
            text = text.replace(space, " ")
    # A newline before the first line lets every pattern below start with one, which `re` finds fastest.
    text = "\n" + _TRAILING.sub("", text)
    if "\t" in text:
        text = _INDENT.sub(lambda indent: indent[0].replace("\t", "    "), text).replace("\t", " ")
    parts: list[str] = []
    columns: list[int] = []
    missing_closer = ""
    for prose, fence, closer in split_code_fences(text):  # each line of the prose starts with a newline
        if prose.strip("\n"):
            prose = _HEADING.sub(r"\1 ", _BLANKS.sub("\n\n", _GAP.sub(" ", prose)))
            parts.append(_reduce_links(_rewrite_lists(prose, columns)))
        else:
            parts.append(_BLANKS.sub("\n\n", prose))
        parts.append(fence)
        missing_closer = closer or missing_closer
    body = "".join(parts).strip("\n")
    return (f"{body}\n", missing_closer) if body else ("", "")


def split_code_fences(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield (prose, the fence after it, its missing closer), the last without a fence; joined they are the text."""
    done = 0
    for start, end, closer in find_code_fences(text):
        yield text[done:start], text[start:end], closer
        done = end
    yield text[done:], "", ""


def find_code_fences(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, missing closer) of each fence, its first line to its last; a closed one misses nothing."""
    if "```" not in text and "~~~" not in text:
        return
    opener, start = "", 0
    for line in _FENCE_LINE.finditer(text):
        marks = line[1]
        if not opener:
            opener, start = marks, line.start()
        elif marks.startswith(opener) and not line[2].strip():
            yield start, line.end(), ""
            opener = ""
    if opener:
        yield start, len(text), opener


# Rule 6: `-` for a bullet, and two spaces of indent a level.


def _rewrite_lists(text: str, columns: list[int]) -> str:
    """Rewrite the marks and indents of list items; ``columns`` of open items are kept between pieces of one text."""
    parts: list[str] = []
    done = 0
    for item in chain(_ITEM.finditer(text), (None,)):
        start = item.start() if item else len(text)
        # Wrapped lines of an item stand at the margin too, so only a blank line before one ends the list.
        blank = text.find("\n\n", done, start + 1)
        if blank >= 0 and _PARAGRAPH.search(text, blank, start + 1):
            columns.clear()
        parts.append(text[done:start])
        if item:
            column = len(item[1])
            while columns and columns[-1] > column:
                columns.pop()
            if not columns or columns[-1] < column:
                columns.append(column)
            parts += ("\n", "  " * (len(columns) - 1), item[2] or "- ")
            done = item.end()
    return "".join(parts)


# Rule 5: links and images reduced to what a reader sees.


def _reduce_links(text: str) -> str:
    """Turn `![alt](url)` into `![img]` and `[text](url)` into `[text]`; reference links stay as they are."""
    parts: list[str] = []
    done = 0
    while (target := text.find("](", done)) >= 0:
        start = text.rfind("\n", done, target) + 1 or done
        end = text.find("\n", target)
        end = len(text) if end < 0 else end
        parts += (text[done:start], _reduce_line(text[start:end]))
        done = end
    return "".join((*parts, text[done:]))


def _reduce_line(line: str) -> str:
    # Without its link such a line could become the start of a fence.
    if ")" not in line or line.lstrip(" ").startswith("```"):
        return line
    if "`" not in line and "\\" not in line:
        plain = _PLAIN_LINK.sub(r"\1", _PLAIN_IMAGE.sub("![img]", line))
        # The patterns agree with the scan; if they leave a link, the scan decides about the whole line.
        if "](" not in plain:
            return plain
    return _Scan(line).run()


@dataclass(slots=True)
class _Scan:
    """One pass that reduces inner links before it judges the outer target, which makes it idempotent."""

    line: str
    out: list[str] = field(default_factory=list)
    size: int = 0
    # Open brackets: token, index in `out`, size of `out` before it, and for a target the index of its text.
    opened: list[tuple[str, int, int, int]] = field(default_factory=list)
    brackets: int = 0
    parens: int = 0
    reduced_to: int = -1

    def run(self) -> str:
        code = _code_spans(self.line)
        done = 0
        for token in _TOKEN.finditer(self.line):
            start, mark = token.start(), token[0]
            if start < done or mark[0] == "\\":
                continue
            if mark[0] == "`":
                if start in code:
                    self._emit(self.line[done : code[start]])
                    done = code[start]
                continue
            if start > done:
                self._emit(self.line[done:start])
            done = token.end()
            if mark == ")":
                self._close_paren(done)
            elif mark == "]":
                self._close_bracket()
                self._emit(mark)
            elif mark == "](":
                text = self._close_bracket()
                self._open(mark if text >= 0 else "(", mark, text)
            elif mark == "(":
                # The words after a link must not become its new target: `[a](b)(c)` is `[a] (c)`.
                self._open(mark, " (" if start == self.reduced_to else mark)
            else:
                self._open(mark, mark)
        self._emit(self.line[done:])
        return "".join(self.out)

    def _emit(self, piece: str) -> None:
        self.out.append(piece)
        self.size += len(piece)

    def _open(self, kind: str, piece: str, text: int = -1) -> None:
        self.opened.append((kind, len(self.out), self.size, text))
        self.brackets += "[" in kind
        self.parens += "(" in kind
        self._emit(piece)

    def _pop(self) -> tuple[str, int, int, int]:
        entry = self.opened.pop()
        self.brackets -= "[" in entry[0]
        self.parens -= "(" in entry[0]
        return entry

    def _close_bracket(self) -> int:
        while self.brackets:
            kind, place, _, _ = self._pop()
            if "[" in kind:
                return place
        return -1

    def _close_paren(self, end: int) -> None:
        while self.parens:
            kind, place, size, text = self._pop()
            if "(" in kind:
                is_nested = len(self.out) - place > 2
                is_short = not is_nested or self.size - size <= _LONGEST_NESTED_TARGET
                if kind == "](" and is_short and _TARGET.fullmatch("".join(self.out[place + 1 :])):
                    is_image = self.out[text] == "!["
                    first, piece = (text, "![img]") if is_image else (place, "]")
                    self.size -= sum(map(len, self.out[first:]))
                    del self.out[first:]
                    self._emit(piece)
                    self.reduced_to = end
                    return
                break
        self._emit(")")


def _code_spans(line: str) -> dict[int, int]:
    """Return start and end of each `code span`: a run of backticks up to the next run of the same length."""
    if "`" not in line:
        return {}
    runs: dict[int, list[int]] = {}
    starts = []
    for run in re.finditer(r"`++", line):
        runs.setdefault(len(run[0]), []).append(run.start())
        starts.append((run.start(), len(run[0])))
    spans: dict[int, int] = {}
    done = 0
    for start, length in starts:
        if start >= done:
            later = runs[length]
            index = bisect_right(later, start)
            if index < len(later):
                done = spans[start] = later[index] + length
    return spans
