"""Question types that ask for more than words: what the sentence looks like that answers each of them."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from embeddings.search.passage_sentences import Kind, Sentence
from embeddings.search.sentence_scores import RankedSentence

TYPE_BONUS = 0.65  # as that of a number that is asked for


class QuestionType(NamedTuple):
    """``question`` finds the questions, ``answer`` the sentences that answer them."""

    question: re.Pattern[str]
    answer: re.Pattern[str]


_CONTACT = QuestionType(
    re.compile(
        r"\b(?:(?:phone|telephone|fax)(?! hours)|e-?mail|number to call"
        r"|number (?:for|of) (?:the|your) \w+ (?:line|desk|office)"
        r"|whom? (?:do|can|should) (?:i|we) (?:call|write|ask))\b",
        re.IGNORECASE,
    ),
    re.compile(r"(?<!\d)\(?\d{3}\)?[\s.-]\d{3}[\s.-]\d{4}(?!\d)|\b1-\d{3}-\d{4}\b|[\w.+-]+@[\w-]+\.\w", re.IGNORECASE),
)
_PROCEDURE = QuestionType(
    re.compile(r"\b(?:how (?:do|can|should|would|must)|where (?:do|can)) (?:i|we|you|one|members?)\b", re.IGNORECASE),
    re.compile(
        r"(?:^|[;:.,] |\band )(?:please )?(?:call|write|send|ask|use|contact|submit|complete|visit|log|sign|fill|mail"
        r"|fax|apply|enroll|request|notify|show|return|choose|search|find|go|tell|print|download)\b"
        r"(?! (?:date|of|in)\b)"
        r"|\byou (?:must|should|can|may|need to|have to) (?:call|write|send|ask|use|contact|submit|complete|apply"
        r"|enroll|request|notify|choose|find|tell|add|file)\b"
        r"|\b(?:member site|web ?site|directory|must ask|can be (?:printed|found|sent|filed|made))\b",
        re.IGNORECASE,
    ),
)
_ADDRESS = QuestionType(
    re.compile(
        r"\b(?:address|where (?:do|can|should|must) (?:i|we) (?:mail|send|write))\b(?!.*e-?mail)", re.IGNORECASE
    ),
    re.compile(r"\b(?:P\. ?O\. ?|PO |Post Office )?Box \d|\b[A-Z]{2} \d{5}\b"),
)
_HOURS = QuestionType(
    re.compile(
        r"\b(?:(?:phone|opening|office|business) hours|(?:when|what (?:time|hours)) (?:are|do) (?:you|they)\b.*\bopen)",
        re.IGNORECASE,
    ),
    re.compile(r"\b\d{1,2}(?::\d\d)? ?[ap]\.?m\b", re.IGNORECASE),
)
_TYPES = (_CONTACT, _ADDRESS, _HOURS, _PROCEDURE)
_DEFINITION = re.compile(
    r"^\W*what (?:is|are|does|do) (?:an? )?(?!(?:my|your|our|the|this|that|it)\b)(?P<term>[\w -]{3,40}?)(?: mean)?\W*$",
    re.IGNORECASE,
)


class Facet(NamedTuple):
    """Part of a benefit with rows of its own: ``row`` finds them, ``asked`` the questions that ask for them."""

    row: re.Pattern[str]
    asked: re.Pattern[str]
    loss: float  # of a row's score, where the question does not


_OUTSIDE = re.compile(r"\b(?:out|outside)[ -]of[ -]network|\bnon-?network", re.IGNORECASE)
_FACETS = (
    Facet(_OUTSIDE, _OUTSIDE, 0.4),
    Facet(
        re.compile(r"\b(?:prior |pre-?)?authori[sz]ation|\bpre-?(?:certification|approval)", re.IGNORECASE),
        re.compile(r"\bauthori[sz]|\bapprov|\bcertif|\bpermission|\breferral|\bneed\b|\brequire", re.IGNORECASE),
        0.4,
    ),
    Facet(  # a list of exclusions tells neither a price nor a number
        re.compile(r"\bnot cover|\bexclu", re.IGNORECASE),
        re.compile(r"\bcover|\bexclu|\bpay for\b|\binclude|\bmay i\b|\bcan (?:i|we)\b", re.IGNORECASE),
        0.3,
    ),
    Facet(  # stays in the answer, below the row for one person
        re.compile(r"\bfamil(?:y|ies)\b", re.IGNORECASE),
        re.compile(r"\bfamil|\bwe\b|\bour\b|\bspouse|\bchild|\bhousehold", re.IGNORECASE),
        0.2,
    ),
)
_EXAMPLE = re.compile(r"\bexamples?\b", re.IGNORECASE)
EXAMPLE_LOSS = 0.4  # of what stands below a heading that says so: it is true of one case
_COVERAGE = re.compile(r"\bcover(?:s|ed)?\b|\bexclu", re.IGNORECASE)
COVERAGE_BONUS = 0.3  # of a sentence or list that says what is covered, where that is the question
FACET_GAIN = 0.5  # of a row about a facet that the question names
_CLAIM_HEAD = re.compile(r"\b(?:cover|exclu|includ|eligib|allow)", re.IGNORECASE)


def fits_type(question: str, sentence: Sentence) -> bool:
    """Tell whether a sentence is of the type that the question asks for: a way to reach, a step, a definition."""
    definition = _DEFINITION.match(question)
    if definition and re.match(rf"{re.escape(definition['term'])}(?:[.:]| (?:is|are|means?)\b)", sentence.text, re.I):
        return True
    return any(each.question.search(question) and each.answer.search(sentence.text) for each in _TYPES)


def type_bonus(question: str, ranked: RankedSentence) -> float:
    """Return what a sentence gains of the type, or a row about the facet, that the question asks for.

    A list of what is covered says so only of the item that is asked for, and not of one that has its words.
    """
    sentence = ranked.sentence
    is_named = any(each.row.search(_label(sentence)) and each.row.search(question) for each in _FACETS)
    says_coverage = _COVERAGE.search(question) and _COVERAGE.search(_label(sentence) or sentence.text)
    is_asked = sentence.kind != Kind.ITEM or ranked.named > 0
    return (
        TYPE_BONUS * fits_type(question, sentence)
        + FACET_GAIN * is_named
        + COVERAGE_BONUS * bool(says_coverage and is_asked)
    )


def facet_loss(question: str, sentence: Sentence) -> float:
    """Return what a row or list item loses that is about a facet that the question does not ask for."""
    label = _label(sentence)
    return max((each.loss for each in _FACETS if each.row.search(label) and not each.asked.search(question)), default=0)


def _label(sentence: Sentence) -> str:
    """Return what a row or list item is about: its first cell, or what introduces the list."""
    if sentence.cells:
        return sentence.cells[0]
    return (sentence.lead or sentence.title) if sentence.kind == Kind.ITEM else ""


def example_loss(question: str, headings: Iterable[str]) -> float:
    """Return what a sentence loses below the heading of an example, unless the question asks for one."""
    return EXAMPLE_LOSS if any(map(_EXAMPLE.search, headings)) and not _EXAMPLE.search(question) else 0.0


def part_lists(sentence: Sentence) -> Iterator[Sentence]:
    """Yield the cells of a row of two lists that stand side by side, as "Not covered" and "Covered"; else the row."""
    if len(sentence.heads) < 2 or not all(map(_CLAIM_HEAD.search, sentence.heads)):
        yield sentence
        return
    for head, cell in zip(sentence.heads, sentence.cells, strict=False):
        if cell:
            yield Sentence(Kind.ITEM, sentence.start, sentence.end, cell, sentence.title, head)
