"""List items of markdown, with `-` for a bullet and two spaces of indent a level (MVP context §10, rule 6)."""

import re
from dataclasses import dataclass, field

# Glyphs that PDFs draw before an item; the last two are Symbol's and Wingdings', which extraction leaves private.
_GLYPHS = "•‣\u2043◦∙·▪▫●○■□►▸\uf0b7\uf0a7"
# A line of nothing but marks is a rule (`* * *`) or an empty item: rewriting it as an item would not be idempotent.
_ITEM = re.compile(rf"\n( *+)(?![-*+_ {_GLYPHS}]*+(?:\n|\Z))(?:[*+-] |[{_GLYPHS}] ?|([0-9]{{1,9}}[.)] ))")
_PARAGRAPH = re.compile(r"\n\n(?=[^ \n])")


@dataclass(slots=True)
class ListLevels:
    """Columns of the open items, kept between the pieces of one text."""

    columns: list[int] = field(default_factory=list)

    def rewrite(self, text: str) -> str:
        """Return the text with its items' marks and indents in one style; each line starts with a newline."""
        parts: list[str] = []
        done = 0
        for match in _ITEM.finditer(text):
            start = match.start()
            indent, number = match.groups()
            self._leave_list(text, done, start)
            column = len(indent)
            while self.columns and self.columns[-1] > column:
                self.columns.pop()
            if not self.columns or self.columns[-1] < column:
                self.columns.append(column)
            parts += (text[done:start], "\n", "  " * (len(self.columns) - 1), number or "- ")
            done = match.end()
        self._leave_list(text, done, len(text))
        return "".join((*parts, text[done:]))

    def _leave_list(self, text: str, start: int, end: int) -> None:
        # Wrapped lines of an item stand at the margin too, so only a blank line before one ends the list.
        blank = text.find("\n\n", start, end + 1)
        if blank >= 0 and _PARAGRAPH.search(text, blank, end + 1):
            self.columns.clear()
