"""Links and images of Markdown, reduced to what a reader sees (rule 5 of MVP context §10)."""

import re
from bisect import bisect_right
from dataclasses import dataclass, field

_TOKEN = re.compile(r"\\[^`\n]|`++|!?\[|\]\(?|[()]")
_TARGET = re.compile(r"""\s*+(?:<[^<>]*+>|\S*+)(?:\s++(?:"[^"]*+"|'[^']*+'|\([^()]*+\)))?+\s*+""")
_PLAIN_IMAGE = re.compile(r"!\[[^\[\]()]*+\]\([^\[\]()\s]*+\)(?!\()")
_PLAIN_LINK = re.compile(r"(\[[^\[\]()]*+\])\([^\[\]()\s]*+\)(?!\()")
# A target with parentheses or brackets inside is scanned again for each pair around it; one without, once.
_LONGEST_NESTED_TARGET = 2000


def reduce_links(text: str) -> str:
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
