"""List items of Markdown, rewritten (rule 6 of MVP context §10): `-` for a bullet, two spaces of indent a level."""

import re
from itertools import chain

# Glyphs that PDFs draw before an item; the last two are Symbol's and Wingdings', which extraction leaves private.
_GLYPHS = "•‣\u2043◦∙·▪▫●○■□►▸\uf0b7\uf0a7"
# A line of nothing but marks is a rule (`* * *`) or an empty item: rewriting it as an item would not be idempotent.
_ITEM = re.compile(rf"\n( *+)(?![-*+_ {_GLYPHS}]*+(?:\n|\Z))(?:[*+-] |[{_GLYPHS}] ?|([0-9]{{1,9}}[.)] ))")
_PARAGRAPH = re.compile(r"\n\n(?=[^ \n])")


def rewrite_lists(text: str, columns: list[int]) -> str:
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
