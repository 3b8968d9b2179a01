"""Sentence ranking: how well each sentence of some passages answers a query, by the words that they share."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import log, sqrt
from statistics import fmean
from typing import NamedTuple

from embeddings.search.answer_types import answer_pattern
from embeddings.search.lexemes import Text, text_lexemes
from embeddings.search.passage_sentences import Kind, Sentence
from embeddings.search.synonyms import find_synonyms

MAX_SENTENCES = 2_000  # of one request
MAX_CHARS = 2_000  # of a sentence in which pairs of words are looked for
# What the words around a sentence count against its own.
CONTEXT_SHARE = 0.5
# A sentence of so many lexemes is as good as one of half of them with half its words in the query.
USUAL_LENGTH = 24
LENGTH_SHARE = 0.3
PAIR_SHARE = 0.3  # of the pairs of adjacent words that a follow-up and a sentence share: "out of network"
TYPE_BONUS = 0.65  # of the query's whole weight, for the type of answer that its question word asks for
HEADING_SHARE = 0.3
VALUE_LOSS = 0.15  # of the words that stand in the values of a row: its label and its column heads say what it is about
LEAST_IDF = 0.5  # of a word that is in every passage: of few passages, the idf says little
ABSENT_SHARE = 0.75  # of the others' mean weight: what a word counts that no sentence has
DIVISIONS = frozenset({"section", "chapter", "part"})  # of documents: they name nothing
EMPHASIS = 2.0  # of the words that a follow-up question adds

SynonymLexemes = tuple[frozenset[str], list[frozenset[str]]]  # of a term of the query, and of each of its synonyms


class RankedText(NamedTuple):
    """A passage's sentences with its heading path and its text search configuration."""

    sentences: Sequence[Sentence]
    headings: Sequence[str]
    configuration: str


@dataclass(frozen=True, slots=True)
class RankedSentence:
    """``passage`` is its number among those given; ``score`` compares the sentences of one call.

    ``words`` are those of the query that stand in the sentence, ``share`` their part of the query, by their rarity,
    together with those around it. ``adds_words``: it says more than the query. ``named`` is the share of the words of
    what it is about, its row's label or column head or its section's heading, that are the query's.
    """

    passage: int
    sentence: Sentence
    score: float
    share: float
    words: frozenset[str]
    adds_words: bool
    named: float


def rank_sentences(
    passages: Sequence[RankedText],
    idf: Mapping[str, float],
    question: str = "",
    *,
    asked: str = "",
    added: str = "",
    added_lexemes: Collection[str] = (),
) -> list[list[RankedSentence]]:
    """Return each passage's sentences in reading order, with their scores.

    ``idf`` are the query's lexemes with their idf among all passages. Words count by it and by their rarity among these
    sentences; those that a follow-up question has ``added`` count several times. ``asked`` is the part of the question
    that tells the type of its answer. A sentence with all words of the query
    has a score of about 1.
    """
    numbered = [(at, each) for at, passage in enumerate(passages) for each in passage.sentences][:MAX_SENTENCES]
    query = frozenset(idf)
    texts = [(each.text, passages[at].configuration) for at, each in numbered]
    contexts, labels = _contexts(passages, numbered), _labels(passages, numbered)
    groups = _term_groups(question, passages)
    names = [_names(passages[at], each) for at, each in numbered]
    lexemes = text_lexemes({*texts, *contexts, *labels, *chain(*groups), *chain(*names)})
    own = [lexemes[text] for text in texts]
    around = _add_sentences_before(numbered, own, [lexemes[context] for context in contexts])
    terms = [(lexemes[term], [lexemes[other] for other in others]) for term, *others in groups]
    weights = _weights(idf, [_add_terms(words, words, terms) for words in own])
    weights |= {word: EMPHASIS * weights[word] for word in query.intersection(added_lexemes)}
    total = sum(weights.values()) or 1.0
    pairs = _word_pairs(added)
    wanted = answer_pattern(asked or question)
    ranked: list[list[RankedSentence]] = [[] for _ in passages]
    for (at, each), said, read, label, called in zip(numbered, own, around, labels, names, strict=True):
        words, context = _add_terms(said, said, terms), _add_terms(read, said | read, terms)
        inside = sum(weights[word] for word in query & words)
        outside = sum(weights[word] for word in (query & context) - words)
        values = sum(weights[word] for word in (query & words) - lexemes[label]) if each.heads else 0.0
        score = (inside - VALUE_LOSS * values) * _length_factor(len(words)) + CONTEXT_SHARE * outside
        if wanted and wanted.search(each.text):
            score += TYPE_BONUS * total
        score = score / total + PAIR_SHARE * _pair_share(pairs, each.text)
        if each.kind in (Kind.HEADING, Kind.CODE):
            score *= HEADING_SHARE
        share = (inside + outside) / total
        named = _named_share(each.kind, query, [lexemes[name] for name in called], terms)
        ranked[at].append(RankedSentence(at, each, score, share, query & words, not words <= query, named))
    return ranked


def best_sentence(sentences: Iterable[RankedSentence]) -> RankedSentence | None:
    """Return the sentence with the highest score, the first of equal ones."""
    return max(sentences, key=lambda each: each.score, default=None)


def _term_groups(question: str, passages: Sequence[RankedText]) -> list[list[Text]]:
    """Return the question's terms that have synonyms, each with these."""
    if not passages:
        return []
    groups = ([term, *others] for term, others in find_synonyms(question).items())
    return [[(term, passages[0].configuration) for term in group] for group in groups]


def _add_terms(words: frozenset[str], known: frozenset[str], terms: Sequence[SynonymLexemes]) -> frozenset[str]:
    """Return the words, with those of each term of which a synonym is known."""
    return words.union(*(term for term, others in terms if any(other and other <= known for other in others)))


def _word_pairs(text: str) -> set[tuple[str, str]]:
    return set(pairwise(re.findall(r"\w+", text.lower())))


def _pair_share(pairs: set[tuple[str, str]], sentence: str) -> float:
    return len(pairs & _word_pairs(sentence[:MAX_CHARS])) / len(pairs) if pairs else 0.0


def _length_factor(words: int) -> float:
    return 1 / (1 - LENGTH_SHARE + LENGTH_SHARE * max(words, USUAL_LENGTH // 4) / USUAL_LENGTH)


def _weights(idf: Mapping[str, float], sentences: Sequence[frozenset[str]]) -> dict[str, float]:
    """Return the mean of each word's idf among all passages and among the sentences: "covered" is in every passage."""
    counted = Counter(word for words in sentences for word in words if word in idf)
    rarity = {word: log(1 + (len(sentences) - times + 0.5) / (times + 0.5)) for word, times in counted.items()}
    weights = {word: sqrt(max(LEAST_IDF, idf[word]) * rarity[word]) for word in counted}
    # Its rarity says nothing of a word that none of the sentences has: the others choose among them.
    absent = ABSENT_SHARE * (fmean(weights.values()) if weights else 1.0)
    return {word: weights.get(word, absent) for word in idf}


def _contexts(passages: Sequence[RankedText], numbered: Sequence[tuple[int, Sentence]]) -> list[Text]:
    """Return the text around each sentence: heading path, title and list introduction."""
    return [
        (" ".join((*passages[at].headings, each.title, each.lead)), passages[at].configuration) for at, each in numbered
    ]


def _add_sentences_before(
    numbered: Sequence[tuple[int, Sentence]], own: Sequence[frozenset[str]], around: Sequence[frozenset[str]]
) -> list[frozenset[str]]:
    """Return the words around each sentence with those of the sentence that it follows."""
    return [words | own[at - 1] if _follows(numbered, at) else words for at, words in enumerate(around)]


def _labels(passages: Sequence[RankedText], numbered: Sequence[tuple[int, Sentence]]) -> list[Text]:
    """Return each row's label and column heads; "" for other sentences."""
    return [
        (" ".join((*each.cells[:1], *each.heads)) if each.heads else "", passages[at].configuration)
        for at, each in numbered
    ]


def _names(passage: RankedText, sentence: Sentence) -> list[Text]:
    """Return what a sentence may be about: its row's label and column heads, or its section's heading."""
    if sentence.heads:
        names = [*sentence.cells[:1], *sentence.heads[1:]]
    elif sentence.kind == Kind.ITEM:
        names = [sentence.text]
    else:
        names = [sentence.title or next(reversed(passage.headings), "")]
    return [(name, passage.configuration) for name in names if name]


def _named_share(
    kind: Kind, query: frozenset[str], names: Iterable[frozenset[str]], terms: Sequence[SynonymLexemes]
) -> float:
    """Return the greatest share of the words of a name that are the query's or their synonyms.

    A row is about its label or a column; a list item or a heading, about all of which more is said, must be the query.
    """
    shares = [0.0]
    for name in names:
        own = frozenset(filter(str.isalpha, name)) - DIVISIONS
        known = query.union(*(other for term, others in terms if term <= query for other in others if other <= own))
        if own and (kind == Kind.ROW or query <= own <= known):
            shares.append(len(own & known) / len(own))
    return max(shares)


def _follows(numbered: Sequence[tuple[int, Sentence]], at: int) -> bool:
    """Tell whether a sentence follows another one in the prose of its section."""
    if at == 0 or numbered[at - 1][0] != numbered[at][0]:
        return False
    before, sentence = numbered[at - 1][1], numbered[at][1]
    return before.title == sentence.title and Kind.ROW not in (before.kind, sentence.kind)
