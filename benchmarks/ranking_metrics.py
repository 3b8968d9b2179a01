"""Ranking metrics at depth ten: hit rate, reciprocal rank, discounted cumulative gain."""

from collections.abc import Sequence
from math import log2
from statistics import fmean

DEPTH = 10


def score_ranking(relevant: Sequence[bool], known: int) -> dict[str, float]:
    """Return a ranking's figures. ``relevant``: best first; ``known``: how many relevant passages there are in all."""
    first = next((rank for rank, hit in enumerate(relevant[:DEPTH], 1) if hit), None)
    gain = sum(hit / log2(rank + 1) for rank, hit in enumerate(relevant[:DEPTH], 1))
    best = sum(1 / log2(rank + 1) for rank in range(1, min(known, DEPTH) + 1))
    hits = {f"hit@{k}": float(first is not None and first <= k) for k in (1, 5, 10)}
    return hits | {"mrr": 1 / first if first else 0.0, "ndcg@10": gain / best if best else 0.0}


def mean_scores(each: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: fmean(one[name] for one in each) for name in each[0]}
