"""What reads like a title, and the number that it bears."""

from __future__ import annotations

import re

LONGEST = 120
LONGEST_WORDS = 12  # of an unnumbered one below the second level; a longer one is the first line of a paragraph
LONGEST_LEAD = 5  # words before a colon

_NUMBER = re.compile(r"(\d{1,2}(?:\.\d{1,2}){0,4})[.):]? ++(?=[^\W\d_]|[\"'(\u201c\u2018])")
_NAMED = re.compile(
    r"(?:chapter|section|article|appendix|annex|schedule|exhibit) (\d{1,3}(?:\.\d{1,2}){0,4})\b", re.IGNORECASE
)
_CHAPTER = re.compile(r"(?i:chapter|article|appendix|annex|schedule|exhibit) (?:[IVXLC]{1,7}|[A-Z])\b")
_PART = re.compile(r"(?i:part) (?:[IVX]{1,5}|\d{1,2})\b")
_LETTER = re.compile(r"[A-Z][.)] |(?i:part|section) [A-Z]\b")
_OPENERS = "\"'\u201c\u2018([*_ "
_ENUMERATED = re.compile(r"\(?[a-z]{1,4}[.)] ")


def number_of(title: str) -> tuple[int, ...]:
    """(8, 2) for "8.2 Therapy" and "Section 8.2"; (0,) for a chapter with a letter, "Appendix B"; else nothing."""
    if _CHAPTER.match(title):
        return (0,)
    number = _NAMED.match(title) or _NUMBER.match(title)
    if not number or starts_lower(title[number.end() :]):
        return ()
    return tuple(map(int, number[1].split(".")))


def is_named(title: str) -> bool:
    """It says itself that it is a chapter or a section."""
    return bool(_NAMED.match(title) or _CHAPTER.match(title))


def is_part(title: str) -> bool:
    """ "Part II" is above the chapters."""
    return _PART.match(title) is not None


def is_lettered(title: str) -> bool:
    """ "A. Changes" and "Part A" are under a numbered section, or chapters where there is none."""
    return _LETTER.match(title) is not None


def is_title(text: str, *, shallow: bool) -> bool:
    """Neither a fragment nor a sentence. Where documents have names, ``shallow``, it may be wordy."""
    if len(text) > LONGEST or starts_lower(text) or text.endswith((".", ";", ",")):
        return False
    if sum(map(str.isalnum, text)) < 2 or not any(map(str.isalpha, text)):
        return False
    words = len(text.split())
    if text.endswith(":"):
        return words <= LONGEST_LEAD
    return shallow or words <= LONGEST_WORDS or bool(number_of(text))


def starts_lower(text: str) -> bool:
    """Its first word is in small letters; those of "eHealth" and "a. Hospitals" are not."""
    enumerator = _ENUMERATED.match(text)
    word = text[enumerator.end() if enumerator else 0 :].lstrip(_OPENERS).split(maxsplit=1)[:1]
    return bool(word) and word[0][:1].islower() and word[0] == word[0].lower()
