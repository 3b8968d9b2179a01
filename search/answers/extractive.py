"""Extractive answers: the sentences and rows that answer best, and documents that say something else."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from embeddings.search.lexemes import query_lexemes
from embeddings.search.passage_sentences import Kind
from embeddings.search.sentence_scores import RankedSentence, content_words, rank_sentences, subject_words
from search.answers.follow_ups import CompleteQuestion
from search.answers.sources import Source

MAX_SENTENCES = 3
MAX_SIDES = 4  # documents of a contradiction
# Chosen on the dev half of `benchmarks answers`.
RANK_SHARE, RANK_SLOPE = 0.35, 3.0  # what a passage's rank counts against its sentences' words, and how fast it falls
LEAST_SHARE = 0.35  # of the question's words, by their rarity, in a sentence that answers it or around it
FURTHER_SHARE, SAME_SHARE = 0.8, 0.95  # of the best score and of its share: other sentences of the answer
SIDE_SHARE = 0.75  # of the best score: what another document says about the same
UNKNOWN_IDF = 1.0  # of a word that the search did not look for
OUTSIDE_LOSS = 0.2  # of a row for providers out of network, where the question does not name them
SAME_SUBJECT = 0.6  # of the question's words in both sentences

_OUT_OF_NETWORK = re.compile(r"\b(?:out|outside)[ -]of[ -]network|\bnon-?network", re.IGNORECASE)
# A number with its unit: $, % or the word after it.
_FIGURE = re.compile(r"(?P<money>[$€£])?(?P<number>\d+(?:[.,]\d+)*) ?(?P<unit>%|[^\W\d_]+)?")
# What an amendment says of a figure that it changes.
_CHANGE = re.compile(
    r"\b(?:until|effective|amended?|replaced|reduced|raised|increased|lowered|extended|deleted|no longer|instead of"
    r"|changed|from (?:january|february|march|april|may|june|july|august|september|october|november|december))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Candidate:
    source: Source
    ranked: RankedSentence
    score: float

    @property
    def text(self) -> str:
        """Return the sentence; a list item after what introduces it: "Not covered: dental implants"."""
        sentence = self.ranked.sentence
        if sentence.kind != Kind.ITEM:
            return sentence.text
        lead = sentence.lead or sentence.title or next(reversed(self.source.headings), "")
        return f"{lead.rstrip(': ')}: {sentence.text}" if lead else sentence.text

    @property
    def place(self) -> tuple[object, tuple[int, int]]:
        sentence = self.ranked.sentence
        return self.source.key, self.source.span(sentence.start, sentence.end)

    @property
    def figures(self) -> dict[str, set[str]]:
        """Return the numbers by their unit."""
        found = defaultdict(set)
        for figure in _FIGURE.finditer(self.ranked.sentence.text):
            unit = figure["money"] or (figure["unit"] or "").lower().removesuffix("s")
            found[unit].add(figure["number"].replace(",", ""))
        return found


@dataclass(frozen=True, slots=True)
class Extract:
    """``sentences``, the best first; ``sides``: the best one of each document where documents differ, else none."""

    sentences: list[Candidate]
    sides: list[Candidate]


def extract_answer(sources: Sequence[Source], question: CompleteQuestion) -> Extract:
    """Return the sentences of the sources, best passage first, that answer the question; none if none does.

    Sources that only come nearest to the question answer nothing: search has judged them.
    """
    sources = [source for source in sources if source.is_relevant]
    candidates = rank_candidates(sources, question)
    if not candidates:
        return Extract([], [])
    best = candidates[0]
    further = islice((each for each in candidates[1:] if _adds_to(each, best)), MAX_SENTENCES - 1)
    return Extract([best, *further], _sides(candidates))


def rank_candidates(sources: Sequence[Source], question: CompleteQuestion) -> list[Candidate]:
    """Return the sentences that may answer, best first, each place once. Each language has its own stems."""
    found: dict[object, Candidate] = {}
    by_language = defaultdict(list)
    for rank, source in enumerate(sources, 1):
        by_language[source.ranked_text.configuration].append((rank, source))
    for configuration, group in by_language.items():
        for (rank, source), sentences in zip(group, _rank(group, question, configuration), strict=True):
            prior = RANK_SHARE * RANK_SLOPE / (RANK_SLOPE + rank - 1)
            for each in sentences:
                if each.sentence.start >= source.repeated and each.share >= LEAST_SHARE and _says_something(each):
                    outside = OUTSIDE_LOSS * _is_outside_network(each, question)
                    candidate = Candidate(source, each, each.score + prior - outside)
                    found.setdefault(candidate.place, candidate)
    return sorted(found.values(), key=lambda each: -each.score)


def _rank(
    group: Sequence[tuple[int, Source]], question: CompleteQuestion, configuration: str
) -> list[list[RankedSentence]]:
    idf = group[0][1].idf  # of all words of the question
    lexemes = query_lexemes(subject_words(question.text), (configuration,))
    lexemes = lexemes or query_lexemes(content_words(question.text), (configuration,))
    return rank_sentences(
        [source.ranked_text for _, source in group],
        {lexeme: idf.get(lexeme, UNKNOWN_IDF) for lexeme in lexemes},
        question.text,
        added=question.added,
        added_lexemes=query_lexemes(question.added, (configuration,)) if question.added else (),
    )


def _says_something(ranked: RankedSentence) -> bool:
    """Leave out headings, what only introduces a list, and what only repeats the question."""
    sentence = ranked.sentence
    is_echo = sentence.kind == Kind.SENTENCE and not ranked.adds_words
    return sentence.kind != Kind.HEADING and not sentence.text.endswith(":") and not is_echo


def _is_outside_network(ranked: RankedSentence, question: CompleteQuestion) -> bool:
    """Tell whether a row is about providers out of network, and the question is not."""
    label = ranked.sentence.cells[0] if ranked.sentence.cells else ""
    return bool(_OUT_OF_NETWORK.search(label)) and not _OUT_OF_NETWORK.search(question.text)


def _adds_to(candidate: Candidate, best: Candidate) -> bool:
    """Tell whether a sentence is about as good as the best one, and another one."""
    is_good = candidate.score >= FURTHER_SHARE * best.score and candidate.ranked.share >= SAME_SHARE * best.ranked.share
    return is_good and candidate.ranked.sentence.text.casefold() != best.ranked.sentence.text.casefold()


def _sides(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the best sentence of each document that says something else about the subject of the best one."""
    best = candidates[0]
    sides = [best]
    for each in _best_by_document(candidates):
        if each.source.key == best.source.key or each.score < SIDE_SHARE * best.score:
            continue
        if _same_subject(each, best) and all(_differ(side, each) for side in sides):
            sides.append(each)
    return sides[:MAX_SIDES] if len(sides) > 1 else []


def _differ(one: Candidate, other: Candidate) -> bool:
    """Tell whether two sentences give different numbers of one unit; one that tells a change may repeat the old."""
    first, second = one.figures, other.figures
    is_change = any(_CHANGE.search(each.ranked.sentence.text) for each in (one, other))
    common = [unit for unit in first if unit in second]
    if is_change:
        return any(first[unit] != second[unit] for unit in common)
    return bool(common) and all(first[unit].isdisjoint(second[unit]) for unit in common)


def _best_by_document(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    seen = set()
    for each in candidates:
        if each.source.key not in seen:
            seen.add(each.source.key)
            yield each


def _same_subject(one: Candidate, other: Candidate) -> bool:
    first, second = one.ranked.words, other.ranked.words
    return len(first & second) >= SAME_SUBJECT * max(1, len(first | second))
