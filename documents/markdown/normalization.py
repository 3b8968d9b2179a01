"""Normalization of parsed markdown before it is stored, hashed and chunked: the nine rules of MVP context §10."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from documents.markdown.code_fences import split_code_fences
from documents.markdown.link_reduction import reduce_links
from documents.markdown.list_items import rewrite_lists

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
            parts.append(reduce_links(rewrite_lists(prose, columns)))
        else:
            parts.append(_BLANKS.sub("\n\n", prose))
        parts.append(fence)
        missing_closer = closer or missing_closer
    body = "".join(parts).strip("\n")
    return (f"{body}\n", missing_closer) if body else ("", "")
