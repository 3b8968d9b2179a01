"""Extractive answers: the sentences and rows that answer best, and documents that say something else."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from embeddings.search.answer_types import content_words, subject_words
from embeddings.search.lexemes import query_lexemes
from embeddings.search.passage_sentences import Kind
from embeddings.search.sentence_scores import RankedSentence, rank_sentences
from search.answers.contradictions import find_sides
from search.answers.follow_ups import CompleteQuestion
from search.answers.question_types import example_loss, facet_loss, type_bonus
from search.answers.sources import Source

MAX_SENTENCES = 3
# Chosen on the dev halves of `benchmarks answers`.
RANK_SHARE, RANK_SLOPE = 0.35, 3.0  # what a passage's rank counts against its sentences' words, and how fast it falls
NAME_WEIGHT = 0.25  # of the share of what a row or list item is about that the question names
SIMILARITY_WEIGHT, USUAL_SIMILARITY = 0.75, 0.4  # of its cosine; of a sentence that the model has not read
LEAST_SHARE = 0.35  # of the question's words, by their rarity, in a sentence that answers it or around it
# Of a sentence that the model has read: its cosine, and what the share of the words counts beside it.
LEAST_EVIDENCE, SHARE_WEIGHT = 0.45, 0.5
FURTHER_SHARE, SAME_SHARE = 0.8, 0.95  # of the best score and of its share: other sentences of the answer
UNKNOWN_IDF = 1.0  # of a word that the search did not look for
_WORD = re.compile(r"[^\W\d_]{3}")
_NUMBER = re.compile(r"\A(?:(?:Section|Chapter|Part) \d+(?:\.\d+)*|\d+(?:\.\d+)+)[.:)]? (?=[A-Z])")  # of a heading


@dataclass(frozen=True, slots=True)
class Candidate:
    source: Source
    ranked: RankedSentence
    score: float

    @property
    def text(self) -> str:
        """Return the sentence; a list item after what introduces it: "Not covered: dental implants".

        A row whose label is no word begins with the head of its column: "Age 70 — Each month: $151.40".
        """
        sentence = self.ranked.sentence
        lead, mark = "", ": "
        if sentence.kind == Kind.ITEM:
            lead = sentence.lead or sentence.title or next(reversed(self.source.headings), "")
        elif sentence.cells and sentence.heads and not _WORD.search(sentence.cells[0]):
            lead, mark = sentence.heads[0] if sentence.cells[0] else "", " "
        lead = _NUMBER.sub("", lead.rstrip(": "))
        return f"{lead}{mark}{sentence.text}" if lead else sentence.text

    @property
    def place(self) -> tuple[object, ...]:
        sentence = self.ranked.sentence
        return self.source.key, self.source.span(sentence.start, sentence.end), sentence.text


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
    sentences = [best, *further]
    return Extract(sentences, find_sides(sentences, candidates))


def rank_candidates(sources: Sequence[Source], question: CompleteQuestion) -> list[Candidate]:
    """Return the sentences that may answer, best first, each place once. Each language has its own stems."""
    found: dict[object, Candidate] = {}
    by_language = defaultdict(list)
    for rank, source in enumerate(sources, 1):
        by_language[source.ranked_text.configuration].append((rank, source))
    for configuration, group in by_language.items():
        for (rank, source), sentences in zip(group, _rank(group, question, configuration), strict=True):
            prior = RANK_SHARE * RANK_SLOPE / (RANK_SLOPE + rank - 1)
            similarities = dict(zip(source.sentences, source.similarities, strict=False))
            for each in sentences:
                known = similarities.get(each.sentence)
                if each.sentence.start >= source.repeated and _is_evidence(each, known) and _says_something(each):
                    similarity = USUAL_SIMILARITY if known is None else known
                    score = each.score + prior + NAME_WEIGHT * each.named + SIMILARITY_WEIGHT * similarity
                    score += type_bonus(question.asked, each) - facet_loss(question.text, each.sentence)
                    score -= example_loss(question.text, (*source.headings[-1:], each.sentence.title))
                    candidate = Candidate(source, each, score)
                    found.setdefault(candidate.place, candidate)
    return sorted(found.values(), key=lambda each: -each.score)


def _rank(
    group: Sequence[tuple[int, Source]], question: CompleteQuestion, configuration: str
) -> list[list[RankedSentence]]:
    idf = group[0][1].idf  # of all words of the question
    lexemes = query_lexemes(subject_words(question.text), (configuration,))
    lexemes = lexemes or query_lexemes(content_words(question.text), (configuration,))
    # The parts of "out-of-network" are lexemes too; of "HM-601" one is the number -601.
    lexemes = [each for each in lexemes if "-" not in each[1:]] or lexemes
    lexemes = [group[0][1].replaced.get(each, each) for each in lexemes]
    return rank_sentences(
        [source.ranked_text for _, source in group],
        {lexeme: idf.get(lexeme, UNKNOWN_IDF) for lexeme in lexemes},
        question.text,
        asked=question.asked,
        added=question.added,
        added_lexemes=query_lexemes(question.added, (configuration,)) if question.added else (),
    )


def _is_evidence(ranked: RankedSentence, similarity: float | None) -> bool:
    """Tell whether a sentence is close enough to the question: by its words, or by what it means."""
    if similarity is None:
        return ranked.share >= LEAST_SHARE
    return similarity + SHARE_WEIGHT * ranked.share >= LEAST_EVIDENCE


def _says_something(ranked: RankedSentence) -> bool:
    """Leave out headings, what only introduces a list, and what only repeats the question."""
    sentence = ranked.sentence
    is_echo = sentence.kind == Kind.SENTENCE and not ranked.adds_words
    return sentence.kind != Kind.HEADING and not sentence.text.endswith(":") and not is_echo


def _adds_to(candidate: Candidate, best: Candidate) -> bool:
    """Tell whether a sentence is about as good as the best one, and another one."""
    is_good = candidate.score >= FURTHER_SHARE * best.score and candidate.ranked.share >= SAME_SHARE * best.ranked.share
    return is_good and candidate.ranked.sentence.text.casefold() != best.ranked.sentence.text.casefold()
