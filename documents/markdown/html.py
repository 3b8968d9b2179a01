"""Parsed markdown as HTML that a browser may show: what a document says, and nothing that acts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

import nh3
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

MAX_CHARS = 25_000  # characters of one call, five dense pages: half a second at worst, in a web process
MOST_CELLS = 4_000  # of tables; a row that ends early is filled up, so a few characters can ask for many
TRUNCATED = '<p class="cut">The text goes on; it is too long to be shown here.</p>'
ALIGNMENTS = {"left", "center", "right"}
PROSE = {"p", "h3", "h4", "h5", "h6", "blockquote", "ul", "ol", "li", "pre", "code", "em", "strong", "hr", "br"}
TAGS = PROSE | {"table", "thead", "tbody", "tr", "th", "td"}
LOST_SHARE = 0.5
# Noncharacters: no text may use them, and unlike the private ones no font does.
START, END = "\ufdd0", "\ufdd1"
_TAG = re.compile("(<[^<>]*>)")
_WORD = re.compile(r"[^\W_]+")
# Where a mark would show what a list, an entity or a fence is told by.
_NUMBER = re.compile(r"[\s>*+\-0-9.)]*\d[.)]")
_ENTITY = re.compile(r"&#?\w*\Z")
_FENCE = re.compile(r"[\s>*+\-0-9.)]*(?:```|~~~)")
NEARBY = 50  # characters: no list's number and no entity is longer
# What belongs to the word at an edge, and is shown with it.
_BEFORE = re.compile(f"([$\u20ac\u00a3\u201c\u2018(]+){START}")
_AFTER = re.compile(f"{END}([.,;:%)!?\u201d\u2019]+)")


class _Renderer(RendererHTML):
    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Without its language, which is only there to choose colours by."""
        return f"<pre><code>{escape(tokens[idx].content)}</code></pre>\n"


def _parser() -> MarkdownIt:
    """Neither links nor images: the normalized text has kept none, and what is left of one is shown as it stands."""
    return MarkdownIt("commonmark", {"html": False, "maxNesting": 100}, renderer_cls=_Renderer).disable(
        ["link", "image", "autolink", "reference", "html_block", "html_inline"]
    )


_markdown, _without_tables = _parser().enable("table"), _parser()
_DELIMITERS = frozenset("|-: \t>*+0123456789.)")  # what the line below a table's head has, inside lists and quotes too


def render_html(markdown: str, *, highlight: tuple[int, int] | None = None) -> SafeString:
    """Return a page's markdown as HTML without links, images, attributes that style or act, or anything to load.

    ``highlight`` is a slice of ``markdown`` to be put into ``<mark>``, each piece of text in one of its own. Headings
    begin at ``<h3>``: the page around has a title and one for each page. The attributes left are ``class`` of cells
    (left, center, right) and ``start`` of numbered lists.
    """
    shown = markdown[:MAX_CHARS].replace(START, "\ufffd").replace(END, "\ufffd")
    made = _cleaned(_made(shown) if highlight is None else _marked(shown, *highlight))
    made = _highlighted(made) if START in made and END in made else made
    return mark_safe(made + (TRUNCATED if len(markdown) > MAX_CHARS else ""))  # noqa: S308 - nh3 has made it safe


def _made(markdown: str) -> str:
    parser = _markdown if _most_cells(markdown) <= MOST_CELLS else _without_tables
    tokens = parser.parse(markdown)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
        elif token.type in ("th_open", "td_open"):
            style = str(token.attrs.pop("style", ""))
            token.attrs = {"class": style.removeprefix("text-align:")} if style else {}
    # What is nested too deep is left out by the parser: then the text is shown as it stands.
    if sum(_letters(token.content) for token in tokens) < LOST_SHARE * _letters(markdown):
        return f"<pre>{escape(markdown)}</pre>"
    made: str = parser.renderer.render(tokens, parser.options, {})
    return made


def _most_cells(markdown: str) -> int:
    """Return how many cells the text's tables have at most: one goes on to the next empty line."""
    cells = width = 0
    for line in markdown.split("\n"):
        if not line.strip():
            width = 0
        elif _DELIMITERS.issuperset(line):
            width = max(width, line.count("|") + 1)
        cells += width
    return cells


def _letters(text: str) -> int:
    return sum(map(str.isalnum, text))


def _cleaned(made: str) -> str:
    return nh3.clean(
        made,
        tags=TAGS,
        attributes={"ol": {"start"}},
        allowed_classes={"th": ALIGNMENTS, "td": ALIGNMENTS},
        attribute_filter=_attribute,
        link_rel=None,
    )


def _attribute(tag: str, name: str, value: str) -> str | None:
    return value if name == "class" or (value.isascii() and value.isdigit() and len(value) < 10) else None


# Highlighting: two marks in the markdown, at the edges of words, where they change nothing of its structure; once the
# HTML is safe, every piece of text between them gets its own <mark>, so that no tag is ever crossed.


def _marked(markdown: str, start: int, end: int) -> str:
    """Return HTML with both marks in it, or without any where they would change what is shown."""
    words = [word.span() for word in _WORD.finditer(markdown, max(0, start), max(0, end))]
    first = next((word[0] for word in words if _takes_marks(markdown, *word)), None)
    last = next((word[1] for word in reversed(words) if _takes_marks(markdown, *word)), None)
    plain = _made(markdown)
    if first is None or last is None:
        return plain
    made = _made("".join((markdown[:first], START, markdown[first:last], END, markdown[last:])))
    return made if made.replace(START, "").replace(END, "") == plain else plain


def _takes_marks(markdown: str, start: int, end: int) -> bool:
    before = markdown[max(markdown.rfind("\n", 0, start) + 1, start - NEARBY) : start]
    is_number = _NUMBER.fullmatch(before + markdown[start : end + 1])
    return not (is_number or _ENTITY.search(before) or _FENCE.match(before))


def _highlighted(made: str) -> str:
    made = _AFTER.sub(rf"\1{END}", _BEFORE.sub(rf"{START}\1", made))
    pieces, inside = [], False
    for piece in _TAG.split(made):
        if piece.startswith("<"):
            pieces.append(piece)
            continue
        before, started, rest = piece.partition(START)
        if started:
            pieces.append(before)
            piece, inside = rest, True
        within, ended, after = piece.partition(END)
        pieces.append(f"<mark>{within}</mark>" if inside and within.strip() else within)
        if ended:
            pieces.append(after)
            inside = False
    return "".join(pieces)
