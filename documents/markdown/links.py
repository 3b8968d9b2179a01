"""Links and images of one line of markdown, reduced to what a reader sees (MVP context §10, rule 5)."""

import re
from bisect import bisect_right
from dataclasses import dataclass, field

_TOKEN = re.compile(r"\\[^`\n]|`++|!?\[|\]\(?|[()]")
_TARGET = re.compile(r"""\s*+(?:<[^<>]*+>|\S*+)(?:\s++(?:"[^"]*+"|'[^']*+'|\([^()]*+\)))?+\s*+""")
_PLAIN_IMAGE = re.compile(r"!\[[^\[\]()]*+\]\([^\[\]()\s]*+\)(?!\()")
_PLAIN_LINK = re.compile(r"(\[[^\[\]()]*+\])\([^\[\]()\s]*+\)(?!\()")
# A target with parentheses or brackets inside is read again for each pair around it; one without is read once.
_LONGEST_NESTED_TARGET = 2000


def reduce_links(text: str) -> str:
    """Turn `![alt](url)` into `![img]` and `[text](url)` into `[text]`; reference links stay as they are."""
    parts: list[str] = []
    done = 0
    while (found := text.find("](", done)) >= 0:
        start = text.rfind("\n", done, found) + 1 or done
        end = text.find("\n", found)
        end = len(text) if end < 0 else end
        parts += (text[done:start], _reduce_line(text[start:end]))
        done = end
    return "".join((*parts, text[done:]))


def _reduce_line(line: str) -> str:
    # Without its link such a line could read as the start of a fence.
    if ")" not in line or line.lstrip(" ").startswith("```"):
        return line
    if "`" not in line and "\\" not in line:
        plain = _PLAIN_LINK.sub(r"\1", _PLAIN_IMAGE.sub("![img]", line))
        # What the two patterns see is what the scan would; where they leave something, it decides about the whole line.
        if "](" not in plain:
            return plain
    return _Scan(line).run()


@dataclass(slots=True)
class _Scan:
    """One pass that judges each target after what is inside it was reduced, so that a second pass finds nothing."""

    line: str
    out: list[str] = field(default_factory=list)
    size: int = 0
    # What is open: its token, its place in `out`, the size of `out` before it, and for a target the place of its text.
    opened: list[tuple[str, int, int, int]] = field(default_factory=list)
    brackets: int = 0
    parens: int = 0
    reduced_to: int = -1

    def run(self) -> str:
        """Return the line with its links reduced."""
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
            self._take(mark, start, done)
        self._emit(self.line[done:])
        return "".join(self.out)

    def _take(self, mark: str, start: int, end: int) -> None:
        if mark == ")":
            self._close_paren(end)
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
        """Return the place of the matching `[` in `out`, or -1."""
        while self.brackets:
            kind, place, _, _ = self._pop()
            if "[" in kind:
                return place
        return -1

    def _close_paren(self, end: int) -> None:
        while self.parens:
            kind, place, size, text = self._pop()
            if "(" in kind:
                if kind == "](" and self._is_target(place, size):
                    self._drop_target(place, text)
                    self.reduced_to = end
                    return
                break
        self._emit(")")

    def _is_target(self, place: int, size: int) -> bool:
        nested = len(self.out) - place > 2
        if nested and self.size - size > _LONGEST_NESTED_TARGET:
            return False
        return _TARGET.fullmatch("".join(self.out[place + 1 :])) is not None

    def _drop_target(self, place: int, text: int) -> None:
        is_image = self.out[text] == "!["
        keep, piece = (text, "![img]") if is_image else (place, "]")
        self.size -= sum(map(len, self.out[keep:]))
        del self.out[keep:]
        self._emit(piece)


def _code_spans(line: str) -> dict[int, int]:
    """Return start and end of each `code span`: a run of backticks up to the next run of the same length."""
    if "`" not in line:
        return {}
    runs: dict[int, list[int]] = {}
    starts = []
    for run in re.finditer(r"`++", line):
        runs.setdefault(len(run[0]), []).append(run.start())
        starts.append((run.start(), len(run[0])))
    found: dict[int, int] = {}
    done = 0
    for start, length in starts:
        if start >= done:
            later = runs[length]
            index = bisect_right(later, start)
            if index < len(later):
                done = found[start] = later[index] + length
    return found
