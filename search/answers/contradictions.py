"""Contradictions: sentences of several documents that give different figures for one subject."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

from embeddings.search.synonyms import find_synonyms

if TYPE_CHECKING:
    from search.answers.extractive import Candidate

MAX_SIDES = 4  # documents of a contradiction
SIDE_SHARE = 0.75  # of the words' score of the sentence that answers: what another document says about the same
SAME_WORDS = 0.6  # of the question's words in both sentences
SAME_NAME = 0.5  # of the words of both names
SAME_PROSE = 0.4  # of the words of both sentences, where one of them is prose
AMENDMENT_SHARE = 0.4  # as SIDE_SHARE, of a sentence that replaces the figure of the one that answers

# A number with its unit: $, % or the word after it.
_FIGURE = re.compile(r"(?P<money>[$€£])?(?P<number>\d+(?:[.,]\d+)*) ?(?P<unit>%|[^\W\d_]+)?")
# What an amendment says of a figure that it changes.
_CHANGE = re.compile(
    r"\b(?:until|effective|amended?|replaced|reduced|raised|increased|lowered|extended|deleted|no longer|instead of"
    r"|changed|from (?:january|february|march|april|may|june|july|august|september|october|november|december))\b",
    re.IGNORECASE,
)
# Alternatives: what is said of one of them is no contradiction to what is said of another.
_ALTERNATIVES = tuple(
    tuple(re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for words in alternative)
    for alternative in (
        (r"in[- ]network", r"out[- ]of[- ]network|non-?network"),
        (r"one person|individual|single|each person|per person|self", r"family|families"),
        (r"child(?:ren)?|pediatric", r"adults?"),
        (r"retail", r"mail[- ]order|by mail"),
        (r"(?<!out)inpatient", r"outpatient"),
        (r"(?<!non)(?<!non-)preferred", r"non-?preferred"),
        (r"generic", r"brand"),
        (r"urgent|expedited", r"standard"),
    )
)  # fmt: skip
_BETWEEN = ("to", "or", "and")  # two figures of one unit
_WORD = re.compile(r"[^\W\d_]{3,}")
_NUMBER = re.compile(r"\d+")
_NETWORK = re.compile(r"\b(?:in|out[- ]of)[- ]network\b", re.IGNORECASE)  # names no benefit
_PARTICLES = frozenset({"and", "the", "for", "with"})
STEM_CHARS = 5


def find_sides(answers: "Sequence[Candidate]", candidates: "Sequence[Candidate]") -> "list[Candidate]":
    """Return the first of the ``answers`` that other documents contradict, with one sentence of each of these."""
    for answer in answers:
        sides = [answer]
        for each in candidates:
            is_other = all(each.source.key != side.source.key for side in sides)
            least = AMENDMENT_SHARE if _replaces(answer, each) else SIDE_SHARE
            if is_other and each.ranked.score >= least * answer.ranked.score and _contradicts(answer, each):
                sides.append(each)
        if len(sides) > 1:
            return sides[:MAX_SIDES]
    return []


def _contradicts(one: "Candidate", other: "Candidate") -> bool:
    is_same = _same_words(one, other) and _same_alternatives(one, other)
    return is_same and _differ(one, other) and (_same_name(one, other) or _replaces(one, other))


def _replaces(one: "Candidate", other: "Candidate") -> bool:
    """Tell whether one sentence tells a change of the other's figure: "extended from 180 to 210 days"."""
    if not _is_change(one, other):
        return False
    first, second = _figures(one), _figures(other)
    return any(first[unit] < second[unit] or second[unit] < first[unit] for unit in first if unit in second)


def _differ(one: "Candidate", other: "Candidate") -> bool:
    """Tell whether two sentences give different numbers of one unit; one that tells a change may repeat the old."""
    first, second = _figures(one), _figures(other)
    common = [unit for unit in first if unit in second]
    if _is_change(one, other):
        return any(first[unit] != second[unit] for unit in common)
    return bool(common) and all(first[unit].isdisjoint(second[unit]) for unit in common)


def _figures(candidate: "Candidate") -> dict[str, set[str]]:
    """Return the numbers of a sentence by their unit; both of "from 180 to 210 days" are of days."""
    found = defaultdict(set)
    unit = ""
    for figure in reversed([*_FIGURE.finditer(candidate.ranked.sentence.text)]):
        if figure["unit"] not in _BETWEEN:
            unit = figure["money"] or (figure["unit"] or "").lower().removesuffix("s")
        found[unit].add(figure["number"].replace(",", ""))
    return found


def _same_words(one: "Candidate", other: "Candidate") -> bool:
    asked = one.ranked.words | other.ranked.words
    first, second = (each.ranked.words | _stems_in(asked, each.ranked.sentence.title) for each in (one, other))
    return len(first & second) >= SAME_WORDS * max(1, len(first | second))


def _same_name(one: "Candidate", other: "Candidate") -> bool:
    """Tell whether two sentences are about one thing: rows by what they name, prose by its words."""
    first, second = _names(one), _names(other)
    if one.ranked.sentence.cells and other.ranked.sentence.cells:
        return any(_is_alike(*pair) for pair in product(first, second))
    words = [_words(each.ranked.sentence.text) for each in (one, other)]
    likeness = len(words[0] & words[1]) / max(1, len(words[0] | words[1]))
    is_named = any(_is_within(name, one, other) for name in (*first, *second))
    return likeness >= SAME_PROSE or (_is_change(one, other) and is_named)


def _is_alike(first: str, second: str) -> bool:
    shared, either = _words(first) & _words(second), _words(first) | _words(second)
    numbers = [set(_NUMBER.findall(name)) for name in (first, second)]
    return (not all(numbers) or numbers[0] == numbers[1]) and len(shared) >= SAME_NAME * max(1, len(either))


def _is_change(*candidates: "Candidate") -> bool:
    return any(_CHANGE.search(each.ranked.sentence.text) for each in candidates)


def _is_within(name: str, *candidates: "Candidate") -> bool:
    """Tell whether each sentence has the words of the name, itself or in its heading."""
    texts = (f"{each.ranked.sentence.title} {each.ranked.sentence.text}" for each in candidates)
    return all(_words(name) <= _words(text) for text in texts)


def _names(candidate: "Candidate") -> list[str]:
    """Return the label, heads and cells without a figure that have a word of the question; none of prose."""
    label, *values = candidate.ranked.sentence.cells or ("",)
    texts = (label, *candidate.ranked.sentence.heads, *(value for value in values if not _NUMBER.search(value)))
    names = (_NETWORK.sub("", text) for text in texts)
    synonyms = [each for others in find_synonyms(" ".join(candidate.ranked.words)).values() for each in others]
    return [
        name
        for name in names
        if _stems_in(candidate.ranked.words, name) or any(each in name.lower() for each in synonyms)
    ]


def _same_alternatives(one: "Candidate", other: "Candidate") -> bool:
    """Tell whether no alternative parts the two: individual and family, in and out of network."""
    return all(
        not first or not second or first & second
        for first, second in zip(_alternatives(one), _alternatives(other), strict=True)
    )


def _alternatives(candidate: "Candidate") -> Iterator[set[int]]:
    sentence = candidate.ranked.sentence
    text = f"{sentence.title} {sentence.lead} {sentence.text}"
    for alternative in _ALTERNATIVES:
        yield {number for number, words in enumerate(alternative) if words.search(text)}


def _words(text: str) -> set[str]:
    return {word.removesuffix("s") for word in _WORD.findall(text.lower())} - _PARTICLES


def _stems_in(stems: Collection[str], text: str) -> frozenset[str]:
    words = _WORD.findall(text.lower())
    return frozenset(stem for stem in stems if any(word.startswith(stem[:STEM_CHARS]) for word in words))
