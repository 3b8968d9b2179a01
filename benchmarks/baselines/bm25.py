"""Okapi BM25, the textbook formula, over passages in memory."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from math import log
from uuid import UUID

K1, B = 1.5, 0.75
WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without stemming or stop words."""
    return WORD.findall(text.lower())


class Okapi:
    """Ranks passages, each a bag of terms, with the inverse document frequency that is never negative."""

    def __init__(self, passages: Mapping[UUID, Mapping[str, int]]) -> None:
        self._passages = passages
        self._sizes = {key: sum(bag.values()) for key, bag in passages.items()}
        self._average = sum(self._sizes.values()) / max(1, len(passages))
        self._holding = Counter(term for bag in passages.values() for term in bag)

    def rank(self, terms: Iterable[str], n: int) -> list[UUID]:
        """Return the ``n`` best passages that hold any of the terms; equals by their id."""
        scores: dict[UUID, float] = defaultdict(float)
        for term in sorted(set(terms)):
            for key, bag in self._passages.items():
                if term in bag:
                    scores[key] += self._worth(term) * self._share(key, bag[term])
        return sorted(scores, key=lambda key: (-scores[key], key))[:n]

    def _worth(self, term: str) -> float:
        holding = self._holding[term]
        return log(1 + (len(self._passages) - holding + 0.5) / (holding + 0.5))

    def _share(self, key: UUID, times: int) -> float:
        return times * (K1 + 1) / (times + K1 * (1 - B + B * self._sizes[key] / self._average))
