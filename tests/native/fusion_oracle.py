"""Reciprocal rank fusion in plain Python, summed in the order of the rankings."""

from __future__ import annotations

from collections.abc import Sequence


def fuse(
    rankings: Sequence[Sequence[int]], rrf_k: float, weights: Sequence[float] | None = None
) -> list[tuple[int, float]]:
    """(id, score) by score descending, best single rank ascending, id ascending."""
    scores: dict[int, float] = {}
    best: dict[int, int] = {}
    for ranking, weight in zip(rankings, weights or [1.0] * len(rankings), strict=True):
        for rank, item in enumerate(ranking, 1):
            scores[item] = scores.get(item, 0.0) + weight / (rrf_k + rank)
            best[item] = min(best.get(item, rank), rank)
    return sorted(scores.items(), key=lambda pair: (-pair[1], best[pair[0]], pair[0]))
