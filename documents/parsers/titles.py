"""What reads like a title, and where its number puts it."""

from __future__ import annotations

import re

LONGEST = 120
LONGEST_WORDS = 12  # of an unnumbered one below the second level; a longer one is the first line of a paragraph
LONGEST_LEAD = 5  # words before a colon

_NUMBER = re.compile(r"(\d{1,2}(?:\.\d{1,2}){1,4}|\d{1,2})[.):]? ++(?=[^\W\d_]|[\"'“‘(])")
_NAMED = re.compile(r"(?:chapter|section|article) (\d{1,3}(?:\.\d{1,2}){0,4})\b", re.IGNORECASE)
_PART = re.compile(r"part (?:[IVX]+|\d{1,2})\b", re.IGNORECASE)
_LETTER = re.compile(
    r"[A-Z]\. |(?i:chapter|section|article|appendix|annex|schedule|exhibit) (?:[A-Z]|[IVXLC]{1,6}|\d{1,3})\b"
)
_ENUMERATED = re.compile(r"\(?[a-z]{1,4}[.)] ")


def depth_of(title: str) -> int:
    """1 for "8. …" and "Chapter 8", 2 for "8.2 …", and so on; 0 without a number."""
    named = _NAMED.match(title)
    number = named or _NUMBER.match(title)
    if not number or (not named and starts_lower(title[number.end() :])):
        return 0
    return number[1].count(".") + 1


def is_part(title: str) -> bool:
    """"Part II" is above the chapters."""
    return _PART.match(title) is not None


def is_lettered(title: str) -> bool:
    """"A. Changes", "Appendix B", "Article IV": under a numbered section, or a chapter where there is none."""
    return _LETTER.match(title) is not None


def is_title(text: str, *, shallow: bool) -> bool:
    """Neither a fragment nor a sentence. Names of documents, at the first two levels, may be ``shallow`` and long."""
    if len(text) > LONGEST or sum(map(str.isalnum, text)) < 2 or not any(map(str.isalpha, text)):
        return False
    if starts_lower(text) or text.endswith((".", ";", ",")):
        return False
    words = len(text.split())
    if text.endswith(":"):
        return words <= LONGEST_LEAD
    return shallow or words <= LONGEST_WORDS or depth_of(text) > 0


def starts_lower(text: str) -> bool:
    """Its first word is in small letters; "eHealth" and "a. Hospitals" are not."""
    enumerator = _ENUMERATED.match(text)
    word = text[enumerator.end() if enumerator else 0 :].lstrip("\"'“‘([*_ ").split(maxsplit=1)[:1]
    return bool(word) and word[0][:1].islower() and word[0] == word[0].lower()
