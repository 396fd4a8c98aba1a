"""Reciprocal rank fusion over arrays; the loops are in `clumsies._native.fusion`.

`score = Σ weight_i / (rrf_k + rank)` over the rankings that hold an id, rank from 1 (Cormack,
Clarke, Büttcher 2009), summed in the order of the rankings. Total order: score descending, then
best single rank, then id ascending; callers number their units in the order of the unit keys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from clumsies._native import fusion

RRF_K = 10.0


def reciprocal_rank_fusion(
    rankings: Sequence[npt.NDArray[np.int64]],
    rrf_k: float = RRF_K,
    weights: Sequence[float] | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """`(ids int64 (n,), scores float64 (n,))`, best first.

    Each ranking is int64 `(n_i,)`, best first, ids >= 0, no repeats; it may be empty. Weights
    (1.0 each by default) are finite and not negative. ValueError where any of this fails.
    """
    for ranking in rankings:
        _check_array(ranking, 1)
    factors = _checked_weights(weights, len(rankings), rrf_k)
    sizes = np.array([ranking.shape[0] for ranking in rankings], dtype=np.int64)
    joined = np.concatenate(rankings) if rankings else np.empty(0, dtype=np.int64)
    if joined.size and joined.min() < 0:
        raise ValueError("a ranking holds a negative id")
    ids = np.empty(joined.shape[0], dtype=np.int64)
    scores = np.empty(joined.shape[0], dtype=np.float64)
    count = fusion.fuse_into(joined, sizes, factors, rrf_k, ids, scores)
    return ids[:count], scores[:count]


def reciprocal_rank_fusion_batch(
    rankings: npt.NDArray[np.int64],
    rrf_k: float = RRF_K,
    weights: Sequence[float] | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """`(ids int64, scores float64, counts int64 (q,))`, ids and scores `(q, lists * depth)`.

    `rankings` is int64 `(q, lists, depth)`, C-contiguous, each ranking padded at its end with -1.
    Row q has `counts[q]` results, best first; behind them ids are -1 and scores 0.0. ValueError on
    a repeat within a ranking, an id below -1, an id behind padding, or weights as above.
    """
    _check_array(rankings, 3)
    if not rankings.flags.c_contiguous:
        raise ValueError("rankings must be C-contiguous")
    queries, lists, depth = rankings.shape
    factors = _checked_weights(weights, lists, rrf_k)
    ids = np.full((queries, lists * depth), -1, dtype=np.int64)
    scores = np.zeros((queries, lists * depth), dtype=np.float64)
    counts = np.zeros(queries, dtype=np.int64)
    fusion.fuse_batch_into(rankings, factors, rrf_k, ids, scores, counts)
    return ids, scores, counts


def _check_array(array: npt.NDArray[np.int64], ndim: int) -> None:
    if array.dtype != np.int64 or array.ndim != ndim:
        raise ValueError(
            f"rankings must be int64 with {ndim} dimension(s), not {array.dtype} with {array.ndim}"
        )


def _checked_weights(
    weights: Sequence[float] | None, lists: int, rrf_k: float
) -> npt.NDArray[np.float64]:
    if not (math.isfinite(rrf_k) and rrf_k >= 0.0):
        raise ValueError(f"rrf_k must be finite and not negative, not {rrf_k}")
    factors = np.ones(lists) if weights is None else np.array(weights, dtype=np.float64)
    if factors.shape != (lists,):
        raise ValueError(f"{factors.size} weights were given for {lists} rankings")
    if not np.all(np.isfinite(factors)) or np.any(factors < 0.0):
        raise ValueError("weights must be finite and not negative")
    return factors
