"""Sentence segmentation of prose by rules, in linear time, and its plain text without Markdown signs."""

import re
from collections.abc import Iterator
from html import unescape

# \u3002, \uff01 and \uff1f are the full stop, the exclamation and the question mark of Chinese and Japanese.
_END = re.compile(r"""[.!?\u2026]++["'\u201d\u2019\u00bb)\]*_]*+(?=\s|\Z)|[\u3002\uff01\uff1f]++""")
_NEXT = re.compile(r"""\s*+["'\u201c\u2018\u00ab(\[*_]*+""")
_LAST_WORD = re.compile(r"[\w.&-]*\Z")
_SECTION = re.compile(  # 4, 4.2, (a), iv, Section 4.2, Artículo 12
    r"(?:(?:section|chapter|article|part|appendix|step|artículo|capítulo|sección) )?"
    r"[#§(]?(?:\d{1,3}|[a-z]|[ivx]{1,5})(?:\.\d{1,3})*\)?",
    re.IGNORECASE,
)
_INITIALS = re.compile(r"[A-Z](?:\.[A-Z])*")
_WORD = re.compile(r"\w*")
LONGEST_WORD = 40  # characters before a full stop in which an abbreviation or a section's number is looked for

# Followed by a name or by the rest of their sentence, whatever its first letter is.
INSEPARABLE = """
e.g i.e eg ie cf vs viz al approx est dr mr mrs ms mx prof rev hon sr sra srta st ste gen gov jr incl excl resp ej
"""
# Abbreviations before a number, else the last word of a sentence: "No. 12", but "Is it covered? No."
BEFORE_NUMBERS = """
no nos nr núm num art arts sec secs sect ch chap cap fig figs tab p pp pág págs vol ed par para pt reg rev ext tel
jan feb mar apr jun jul aug sep sept oct nov dec corp inc co ltd
"""
# After initials or "U.S." only these words start a sentence.
STARTERS = """
The A An If When You Your We Our This That These Those It In For Each Any All No There They To See As At
"""
_INSEPARABLE, _BEFORE_NUMBERS, _STARTERS = (
    frozenset(words.split()) for words in (INSEPARABLE, BEFORE_NUMBERS, STARTERS)
)


def sentence_spans(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield start and end of each sentence in ``text[start:end]``, one block of prose, without space around it."""
    end = len(text) if end is None else end
    begin = first = _skip_space(text, start, end)
    for mark in _END.finditer(text, begin, end):
        if mark.start() < begin or not _ends_sentence(text, begin, mark, end):
            continue
        yield begin, mark.end()
        begin = _skip_space(text, mark.end(), end)
    last = first + len(text[first:end].rstrip())
    if begin < last:
        yield begin, last


def _skip_space(text: str, start: int, end: int) -> int:
    while start < end and text[start].isspace():
        start += 1
    return start


def _ends_sentence(text: str, begin: int, mark: re.Match[str], end: int) -> bool:
    following = _NEXT.match(text, mark.end(), end)
    at = following.end() if following else end
    if at >= end:
        return True
    letter = text[at]
    if letter.islower() or letter in ",;:.)]}!?%&/" or text[mark.start() - 1].isspace():
        return False
    if not mark[0].startswith(".") or mark[0].startswith(".."):
        return True
    word = _last_word(text, begin, mark.start())
    is_short = mark.start() - begin <= LONGEST_WORD
    if is_short and _SECTION.fullmatch(text[begin : mark.start()].strip("*_ ")):  # a section's number, not a sentence
        return False
    if word.lower() in _INSEPARABLE:
        return False
    if word.lower() in _BEFORE_NUMBERS:
        return not letter.isdigit()
    if _INITIALS.fullmatch(word):
        next_word = _WORD.match(text, at, end)
        return next_word is not None and next_word[0] in _STARTERS
    return True


def _last_word(text: str, begin: int, end: int) -> str:
    word = _LAST_WORD.search(text[max(begin, end - LONGEST_WORD) : end])
    return word[0].lstrip(".-") if word else ""


_LINE_MARK = re.compile(r"(?:\A|\n)[ \t]*+(?:#{1,6}[ \t]++|>[ \t]*+|[-*+][ \t]++)")
_HEADING_END = re.compile(r"[ \t]++#++[ \t]*+\Z")
_STARS = re.compile(r"(?<!\*)(\*{1,3})(?=[^\s*])([^*]++)(?<=\S)\1(?!\*)")
_LOW_LINES = re.compile(r"(?<!\w)(_{1,3})(?=[^\s_])([^_]++)(?<=\S)\1(?!\w)")
_TICKS = re.compile(r"(`++)([^`]++)\1")
_ESCAPE = re.compile(r"""\\([!-/:-@\[-`{-~])""")
_TAG = re.compile(r"</?(?:br|b|i|u|em|strong|sup|sub|p|div|span)\s*+/?>", re.IGNORECASE)
_NESTED = 3  # emphasis in emphasis


def plain_text(markdown: str) -> str:
    """Return prose without marks of headings, bullets, quotes, emphasis and code, its white space as spaces."""
    # Most sentences are one line that begins with a letter, without any mark to look for.
    text = _LINE_MARK.sub(" ", markdown) if "\n" in markdown or not markdown[:1].isalnum() else markdown
    if "#" in text:
        text = _HEADING_END.sub("", text)
    for sign, emphasis in (("*", _STARS), ("_", _LOW_LINES)):
        for _ in range(_NESTED if sign in text else 0):
            text = emphasis.sub(r"\2", text)
    if "`" in text:
        text = _TICKS.sub(r"\2", text)
    if "\\" in text:
        text = _ESCAPE.sub(r"\1", text)
    if "<" in text:
        text = _TAG.sub(" ", text)
    if "&" in text:
        text = unescape(text)
    return " ".join(text.split())
