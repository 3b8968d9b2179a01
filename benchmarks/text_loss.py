"""Text loss of the pipeline: words of a page that are missing from the passages citing it."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pypdfium2

from benchmarks.baselines.bm25 import words
from benchmarks.questions import Question

PRESENT = 0.95  # of a page's different words: two readers do not split all words alike
FEWEST_PAGES = 3  # of a document whose repeated lines are taken for running heads


def measure_loss(questions: Sequence[Question], passages: dict[Path, list[tuple[range, str]]]) -> dict[str, Any]:
    """Return the share of questions that no ranking could answer, and how whole the pages and answers arrived.

    ``passages``: for each document the pages and the text of its passages. The pages' words are those that another
    reader than the pipeline's sees; of a page on which it sees none nothing is said.
    """
    shares = {question.name: _best_page_share(question, passages) for question in questions}
    readable = {name: share for name, share in shares.items() if share is not None}
    lost = sorted(name for name, share in readable.items() if share < PRESENT)
    quoted = [question for question in questions if question.answer]
    whole = [
        any(_letters(question.answer) in _letters(text) for text in _texts(question, passages)) for question in quoted
    ]
    return {
        "lost": len(lost) / max(1, len(readable)),
        "lost_questions": lost,
        "page_words_kept": fmean(readable.values()) if readable else 0.0,
        "pages_without_text": len(shares) - len(readable),
        "answers_whole_in_a_passage": fmean(whole) if whole else None,
    }


def _best_page_share(question: Question, passages: dict[Path, list[tuple[range, str]]]) -> float | None:
    """Return the share of preserved words of the best preserved gold page."""
    shares = []
    for document, pages in question.gold.items():
        for page in pages:
            page_words = _words(document, page)
            if page_words:
                passage_words = {
                    word for cited, text in passages.get(document, []) if page in cited for word in words(text)
                }
                shares.append(len(page_words & passage_words) / len(page_words))
    return max(shares, default=None)


def _texts(question: Question, passages: dict[Path, list[tuple[range, str]]]) -> list[str]:
    return [
        text
        for document, pages in question.gold.items()
        for cited, text in passages.get(document, [])
        if pages.intersection(cited)
    ]


def _letters(text: str) -> str:
    """Return only the letters and digits of a text: table rules and line ends separate words differently."""
    return re.sub(r"[\W_]+", "", text.lower())


@cache
def _words(document: Path, page: int) -> frozenset[str]:
    lines = _lines(document)
    if page > len(lines):
        return frozenset()
    heads = _running_heads(document)
    return frozenset(words("\n".join(line for line in lines[page - 1] if _mask_digits(line) not in heads)))


@cache
def _lines(document: Path) -> list[list[str]]:
    with pypdfium2.PdfDocument(document) as pdf:
        return [page.get_textpage().get_text_range().splitlines() for page in pdf]


@cache
def _running_heads(document: Path) -> frozenset[str]:
    """Lines that, but for their numbers, stand on more than half of the pages: the pipeline drops those on purpose."""
    pages = _lines(document)
    if len(pages) < FEWEST_PAGES:
        return frozenset()
    line_counts = Counter(line for lines in pages for line in {_mask_digits(line) for line in lines})
    return frozenset(line for line, times in line_counts.items() if times > len(pages) / 2)


def _mask_digits(line: str) -> str:
    return re.sub(r"\d+", "#", line.strip())
