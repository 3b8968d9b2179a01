"""Safe HTML of parsed markdown: no links, images, scripts or styles, with an optional highlight."""

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
MAX_CELLS = 4_000  # of tables; short rows are filled up, so a few characters can produce many
TRUNCATED = '<p class="cut">The text goes on; it is too long to be shown here.</p>'
ALIGNMENTS = {"left", "center", "right"}
PROSE = {"p", "h3", "h4", "h5", "h6", "blockquote", "ul", "ol", "li", "pre", "code", "em", "strong", "hr", "br"}
TAGS = PROSE | {"table", "thead", "tbody", "tr", "th", "td"}
LOST_SHARE = 0.5
# Noncharacters: no text may contain them, and unlike private-use characters no font has them.
START, END = "\ufdd0", "\ufdd1"
_TAG = re.compile("(<[^<>]*>)")
_WORD = re.compile(r"[^\W_]+")
# Syntax of a list, an entity or a fence, which a mark would break and show.
_NUMBER = re.compile(r"[\s>*+\-0-9.)]*\d[.)]")
_ENTITY = re.compile(r"&#?\w*\Z")
_FENCE = re.compile(r"[\s>*+\-0-9.)]*(?:```|~~~)")
_LIST_START = re.compile(r"[0-9]{1,9}")
NEARBY = 50  # characters: no list's number and no entity is longer
# Punctuation of the word at an edge, highlighted with it.
_OPENING = "[$\u20ac\u00a3\u201c\u2018(]"
_BEFORE = re.compile(f"(?<!{_OPENING})({_OPENING}+){START}")  # from the first of them on: else it is quadratic
_AFTER = re.compile(f"{END}([.,;:%)!?\u201d\u2019]+)")


class _Renderer(RendererHTML):
    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Render a fence without its language, which serves only syntax colours."""
        return f"<pre><code>{escape(tokens[idx].content)}</code></pre>\n"


def _parser() -> MarkdownIt:
    """Return a parser without links and images: the normalized text has none; any left are shown as text."""
    return MarkdownIt("commonmark", {"html": False, "maxNesting": 100}, renderer_cls=_Renderer).disable(
        ["link", "image", "autolink", "reference", "html_block", "html_inline"]
    )


_markdown, _without_tables = _parser().enable("table"), _parser()
_DELIMITERS = frozenset("|-: \t>*+0123456789.)")  # of the line below a table's head, inside lists and quotes too


def render_html(markdown: str, *, highlight: tuple[int, int] | None = None) -> SafeString:
    """Return a page's markdown as HTML without links, images, attributes that style or act, or anything to load.

    ``highlight`` is a slice of ``markdown`` to put into ``<mark>``, one for each piece of text. Headings begin at
    ``<h3>``: the surrounding page has a title and a heading for each page. The remaining attributes are ``class`` of
    cells (left, center, right) and ``start`` of numbered lists.
    """
    markdown, is_truncated = markdown[:MAX_CHARS], len(markdown) > MAX_CHARS
    markdown = markdown.replace(START, "\ufffd").replace(END, "\ufffd")
    html = nh3.clean(
        _convert(markdown) if highlight is None else _convert_with_marks(markdown, *highlight),
        tags=TAGS,
        attributes={"ol": {"start"}},
        allowed_classes={"th": ALIGNMENTS, "td": ALIGNMENTS},
        # "class" of cells, limited by allowed_classes, and "start" of lists: a short number.
        attribute_filter=lambda tag, name, text: text if name == "class" or _LIST_START.fullmatch(text) else None,
        link_rel=None,
    )
    if START in html and END in html:
        html = _highlight(html)
    return mark_safe(html + (TRUNCATED if is_truncated else ""))  # noqa: S308 - nh3 has cleaned it


def _convert(markdown: str) -> str:
    parser = _markdown if _max_cells(markdown) <= MAX_CELLS else _without_tables
    tokens = parser.parse(markdown)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
        elif token.type in ("th_open", "td_open"):
            style = str(token.attrs.pop("style", ""))
            token.attrs = {"class": style.removeprefix("text-align:")} if style else {}
    # The parser drops text that is nested too deep: then all of the text is shown unformatted.
    if sum(_count_letters(token.content) for token in tokens) < LOST_SHARE * _count_letters(markdown):
        return f"<pre>{escape(markdown)}</pre>"
    html: str = parser.renderer.render(tokens, parser.options, {})
    return html


def _max_cells(markdown: str) -> int:
    """Return an upper bound of the cells in the text's tables; a table ends at the next empty line."""
    cells = width = 0
    for line in markdown.split("\n"):
        if not line.strip():
            width = 0
        elif _DELIMITERS.issuperset(line):
            width = max(width, line.count("|") + 1)
        cells += width
    return cells


def _count_letters(text: str) -> int:
    return sum(map(str.isalnum, text))


# Highlighting: two marks in the markdown, at the edges of words, where they change nothing of its structure; once the
# HTML is safe, each piece of text between them gets its own <mark>, so that no tag is ever crossed.


def _convert_with_marks(markdown: str, start: int, end: int) -> str:
    """Return HTML with both marks in it, or without any where they would change what is shown."""
    words = [word.span() for word in _WORD.finditer(markdown, max(0, start), max(0, end))]
    first = next((word[0] for word in words if _accepts_marks(markdown, *word)), None)
    last = next((word[1] for word in reversed(words) if _accepts_marks(markdown, *word)), None)
    plain = _convert(markdown)
    if first is None or last is None:
        return plain
    marked = _convert("".join((markdown[:first], START, markdown[first:last], END, markdown[last:])))
    return marked if marked.replace(START, "").replace(END, "") == plain else plain


def _accepts_marks(markdown: str, start: int, end: int) -> bool:
    before = markdown[max(markdown.rfind("\n", 0, start) + 1, start - NEARBY) : start]
    is_number = _NUMBER.fullmatch(before + markdown[start : end + 1])
    return not (is_number or _ENTITY.search(before) or _FENCE.match(before))


def _highlight(html: str) -> str:
    html = _AFTER.sub(rf"\1{END}", _BEFORE.sub(rf"{START}\1", html))
    pieces, inside = [], False
    for piece in _TAG.split(html):
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
