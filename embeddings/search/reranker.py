"""Second stage of hybrid search: candidates ranked again by their best sentence or table row, and by their document."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any, cast
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from embeddings import sentence_vectors
from embeddings.embedders.registry import get_embedder
from embeddings.embedders.wordllama import WordLlama
from embeddings.search.lexemes import ENGLISH, text_lexemes
from embeddings.search.results import RetrievedChunk

CANDIDATES = 30  # 20 lose a question in fifty of the dev sets, 80 win none
# Chosen on the dev halves (docs/retrieval.md), where other weights and further features were no better.
LEAST_SIMILARITY = 0.2  # of two tokens: below it they do not match
HEADING_WEIGHT = 0.5  # of a word that matches the heading path and not the sentence
# Fusion, words, similarity by the static vectors, by the sentence model's, name, BM25: by coordinate search, without
# sentence vectors and where all candidates have them.
WEIGHTS = (1.0, 1.0, 1.0, 0.0, 1.0, 0.25)
SENTENCE_WEIGHTS = (1.0, 1.5, 1.25, 1.25, 2.0, 0.25)
# What the sentence model's similarity may be where only the static one is known: their means and deviations agree.
SIMILARITY_OFFSET, SIMILARITY_SLOPE = 0.062, 0.983
CLEAR_NAME = 3.0  # idf of the words that name a document beyond doubt
NEAR_HEADINGS = 2  # of the path: they are read before each sentence
# Chosen on the dev halves and the questions off topic. They concern the static vectors, whatever the tenant's model;
# and those of sentences, where passages have them.
COVERAGE_WEIGHT, WORD_WEIGHT, MANY_WORDS = 0.3, 0.1, 6
LEAST_RELEVANCE = 0.83
# Those of sentences are near a logistic regression's, divided by the similarity's weight. The best of many passages is
# similar by chance; a known term that no passage has, nor a synonym of it, asks for what the documents do not tell.
SENTENCE_COVERAGE_WEIGHT, SENTENCE_WORD_WEIGHT, SIZE_LOSS, ABSENT_TERM_LOSS = 0.3, 0.05, 0.035, 0.15
LEAST_SENTENCE_RELEVANCE = 0.52
WHOLE = 0.999  # all words of the query
SMALL_PRODUCT = 250_000  # multiplications that OpenBLAS leaves to the calling thread; its others spin and cost more
WORD = re.compile(r"[^\W_]+")

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SentenceMatch:
    """``words``: the share of the query words, by idf, that the best sentence matches; ``similarity``: best cosine.

    ``sentences`` are the cosines of each by the sentence model, none where the passage has no sentence vectors.
    """

    words: float
    similarity: float
    sentences: Sequence[float] = ()

    @property
    def model_similarity(self) -> float | None:
        """The best cosine by the sentence model."""
        return max(self.sentences, default=None)

    @property
    def expected_similarity(self) -> float:
        """The sentence model's similarity, known or expected."""
        if self.model_similarity is None:
            return SIMILARITY_OFFSET + SIMILARITY_SLOPE * self.similarity
        return self.model_similarity


def word_weights(query: str, idf: Mapping[str, float], configurations: Sequence[str] = (ENGLISH,)) -> dict[str, float]:
    """Return the query's words that are no stop words, with the idf of their lexeme."""
    words = list(dict.fromkeys(WORD.findall(query.lower())))
    weights = dict.fromkeys(words, 0.0)
    for (word, _), lexemes in text_lexemes([(word, each) for word in words for each in configurations]).items():
        weights[word] = max(weights[word], *(idf.get(lexeme, 0.0) for lexeme in lexemes), 0.0)
    return {word: weight for word, weight in weights.items() if weight}


def rerank(
    chunks: Sequence[RetrievedChunk], matches: Sequence[SentenceMatch], named: Mapping[UUID, float]
) -> list[RetrievedChunk]:
    """Return the candidates in their new order, each with its new score, from 0 to 1.

    ``matches`` are their sentences', ``named`` the documents that the query names.
    """
    if not chunks:
        return []
    clearest = max(named.values(), default=0.0)
    scale = clearest and min(1.0, clearest / CLEAR_NAME) / clearest
    fused = np.array([chunk.ranked.score for chunk in chunks])
    features = [
        fused / fused.max(),
        _spread([match.words for match in matches]),
        _spread([match.similarity for match in matches]),
        _spread([match.expected_similarity for match in matches]),
        np.array([scale * named.get(chunk.document_id, 0.0) for chunk in chunks]),
        _share_of_best([chunk.ranked.parts.text.bm25 if chunk.ranked.parts.text else 0.0 for chunk in chunks]),
    ]
    scores = np.average(features, axis=0, weights=_feature_weights(matches))
    order = np.argsort(-scores, kind="stable")
    return [
        replace(
            chunks[at],
            ranked=replace(chunks[at].ranked, score=float(scores[at])),
            similarities=matches[at].sentences,
        )
        for at in order
    ]


def is_relevant(
    matches: Sequence[SentenceMatch],
    coverage: float,
    word_count: int,
    *,
    chunk_count: int = 1,
    lacks_term: bool = False,
) -> bool:
    """Tell whether the candidates answer the query, not merely come nearest to it.

    ``coverage`` is the greatest share, by idf, of the query's words in one passage, ``word_count`` their number. A
    short query is easily similar to something. ``chunk_count`` is the number of passages searched; ``lacks_term``:
    none has a known term of the query or a synonym. Passages without sentence vectors are judged by the static ones.
    """
    words = min(word_count, MANY_WORDS)
    by_model = max((match.model_similarity for match in matches if match.model_similarity is not None), default=-1.0)
    by_model += SENTENCE_COVERAGE_WEIGHT * coverage + SENTENCE_WORD_WEIGHT * words
    by_model -= SIZE_LOSS * log(max(1, chunk_count)) + ABSENT_TERM_LOSS * lacks_term
    by_static = max((match.similarity for match in matches if match.model_similarity is None), default=-1.0)
    return (
        coverage >= WHOLE
        or by_model >= LEAST_SENTENCE_RELEVANCE
        or by_static + COVERAGE_WEIGHT * coverage + WORD_WEIGHT * words >= LEAST_RELEVANCE
    )


def _feature_weights(matches: Sequence[SentenceMatch]) -> NDArray[Any]:
    """Return the weights between the two sets, by the share of the candidates that have sentence vectors."""
    share = sum(match.model_similarity is not None for match in matches) / len(matches)
    without, within = (np.array(each) / sum(each) for each in (WEIGHTS, SENTENCE_WEIGHTS))
    weights: NDArray[Any] = (1 - share) * without + share * within
    return weights


def _share_of_best(scores: Sequence[float]) -> NDArray[Any]:
    """Return the scores as shares of the greatest: fused ranks do not tell how far the first one is ahead."""
    return np.array(scores) / (max(scores) or 1.0)


def _spread(values: Sequence[float]) -> NDArray[Any]:
    """Return the values between 0, the least, and 1, the greatest."""
    least, greatest = min(values), max(values)
    return (np.array(values) - least) / ((greatest - least) or 1.0)


def match_sentences(chunks: Sequence[RetrievedChunk], query: str, weights: Mapping[str, float]) -> list[SentenceMatch]:
    """Match the query with every sentence and table row of the chunks, by the local model's static token vectors.

    And with the sentence vectors of the chunks that have them. ``weights`` are the query's words with their idf.
    """
    if not chunks:
        return []
    model = cast(WordLlama, get_embedder("local"))
    texts = [[each.text.lower() for each in chunk.sentences] or [chunk.text] for chunk in chunks]
    sentences = _Tokens.read(model, [text for own in texts for text in own])
    paths = _Tokens.read(model, [" ".join(chunk.headings).lower() for chunk in chunks])
    near = _Tokens.read(model, [" ".join(chunk.headings[-NEAR_HEADINGS:]).lower() for chunk in chunks])
    owners = np.repeat(np.arange(len(chunks)), list(map(len, texts)))
    asked = _unit(_Tokens.read(model, [query.lower()]).sums())[0]
    similarities = np.einsum("ij,j->i", _unit(sentences.sums() + near.sums()[owners]), asked)
    words = model.tokens(list(weights))
    # A word of several tokens has its weight in all of them together.
    shares = [[weight / len(own)] * len(own) for weight, own in zip(weights.values(), words, strict=True)]
    share = np.array([each for own in shares for each in own], np.float32) / (sum(weights.values()) or 1.0)
    asked_words = _unit(model.token_rows[np.concatenate([*words, np.zeros(0, np.int32)])])
    found = np.maximum(sentences.match(asked_words), HEADING_WEIGHT * paths.match(asked_words)[:, owners])
    matched = np.einsum("ij,i->j", found, share)
    begins = np.cumsum([0, *map(len, texts[:-1])])
    best = np.maximum.reduceat(matched, begins).tolist(), np.maximum.reduceat(similarities, begins).tolist()
    return [SentenceMatch(*each) for each in zip(*best, _model_similarities(chunks, query), strict=True)]


def _model_similarities(chunks: Sequence[RetrievedChunk], query: str) -> list[Sequence[float]]:
    """Return the cosines of each chunk's sentences by the sentence model, none where it cannot embed the query."""
    asked = sentence_vectors.embed_question(query) if any(chunk.sentence_vectors for chunk in chunks) else None
    if asked is None:
        return [()] * len(chunks)
    return [
        sentence_vectors.similarities(chunk.sentence_vectors, asked).tolist() if chunk.sentence_vectors else ()
        for chunk in chunks
    ]


@dataclass(frozen=True, slots=True)
class _Tokens:
    """Tokens of some texts one after another, each text's after one that means nothing, so that none is empty."""

    rows: Floats  # of the different tokens; the first is nothing's
    numbers: NDArray[Any]  # of each token among them
    begins: NDArray[Any]  # of each text

    @classmethod
    def read(cls, model: WordLlama, texts: Sequence[str]) -> "_Tokens":
        tokens = model.tokens(texts)
        sizes = np.array([len(own) + 1 for own in tokens])
        begins = np.cumsum(sizes) - sizes
        different, numbers = np.unique(np.concatenate(tokens), return_inverse=True)
        placed = np.zeros(sizes.sum(), np.int64)
        is_token = np.ones(placed.size, bool)
        is_token[begins] = False
        placed[is_token] = numbers + 1
        nothing = np.zeros((1, model.token_rows.shape[1]), np.float32)
        return cls(np.concatenate([nothing, model.token_rows[different]]), placed, begins)

    def sums(self) -> Floats:
        """Return each text's sum of token vectors."""
        rows = self.rows.take(self.numbers, axis=0)
        sums = np.empty((len(self.begins), rows.shape[1]), np.float32)
        ends = np.append(self.begins[1:], len(rows))
        for row, begin, end in zip(sums, self.begins.tolist(), ends.tolist(), strict=True):
            np.add.reduce(rows[begin:end], axis=0, out=row)  # in a quarter of reduceat's time
        return sums

    def match(self, words: Floats) -> Floats:
        """Return, a row for each word, how well each text's best token matches it, from 0 to 1."""
        rows, block = _unit(self.rows), max(1, SMALL_PRODUCT // max(1, words.size))
        blocks = [words @ rows[start : start + block].T for start in range(0, len(rows), block)]
        similar = np.maximum((np.concatenate(blocks, axis=1) - LEAST_SIMILARITY) / (1 - LEAST_SIMILARITY), 0.0)
        found: Floats = np.maximum.reduceat(similar.take(self.numbers, axis=1), self.begins, axis=1)
        return found


def _unit(rows: Floats) -> Floats:
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    scaled: Floats = rows / np.maximum(lengths, 1e-9)[:, None]
    return scaled
