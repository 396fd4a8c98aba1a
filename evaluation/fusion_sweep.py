"""What `rrf_k` and the lists' weights do to the fused order, over kept traces.

The two lists of every query (identity and BM25; vector) are fused anew by the engine's own batched
kernel, thousands of queries in one call for each setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clumsies.engine.fusion import reciprocal_rank_fusion_batch
from clumsies.errors import InvalidRequest
from evaluation.metrics import Gain, Scores, first_occurrences, mean, score
from evaluation.traces import KeptTrace

Integers = NDArray[np.int64]

RRF_KS = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 100.0)
VECTOR_WEIGHTS = (0.5, 1.0, 2.0)
DEPTH = 60


@dataclass(frozen=True, slots=True)
class FusionSetting:
    """Means over the sets of the fused order at one `rrf_k` and weight of the vector list."""

    rrf_k: float
    vector_weight: float
    ndcg_at_10: float
    recall_at_20: float


def sweep_fusion(
    traces: Iterable[KeptTrace],
    *,
    rrf_ks: Sequence[float] = RRF_KS,
    vector_weights: Sequence[float] = VECTOR_WEIGHTS,
    gain: Gain = "exponential",
) -> list[FusionSetting]:
    """Every setting, best nDCG@10 first. Raises InvalidRequest without an answerable trace."""
    used = [trace for trace in traces if trace.answerable]
    if not used:
        raise InvalidRequest(
            "invalid_request", "no trace has an answer. Give traces of a set with judgments."
        )
    lists = _lists_of(used)
    settings = [lists.fused(rrf_k, weight, gain) for rrf_k in rrf_ks for weight in vector_weights]
    return sorted(settings, key=lambda one: (-one.ndcg_at_10, one.rrf_k, one.vector_weight))


@dataclass(frozen=True, slots=True)
class _Lists:
    """`rankings` int64 (queries, 2, DEPTH); its ids are positions in `documents[query]`."""

    traces: Sequence[KeptTrace]
    documents: Sequence[Sequence[str]]
    rankings: Integers

    def fused(self, rrf_k: float, vector_weight: float, gain: Gain) -> FusionSetting:
        weights = (1.0, vector_weight)
        units, _, counts = reciprocal_rank_fusion_batch(self.rankings, rrf_k, weights)
        by_set: dict[str, list[Scores]] = {}
        for number, trace in enumerate(self.traces):
            of_query = self.documents[number]
            order = units[number, : counts[number]].tolist()
            documents = first_occurrences(of_query[unit] for unit in order)
            scores = score(documents, trace.judgments, gain)
            by_set.setdefault(trace.set_name, []).append(scores)
        means = mean([mean(scores) for scores in by_set.values()])
        return FusionSetting(rrf_k, vector_weight, means.ndcg_at_10, means.recall_at_20)


def _lists_of(traces: Sequence[KeptTrace]) -> _Lists:
    """Both lists of every query, units numbered in the order of their keys as fusion asks."""
    rankings = np.full((len(traces), 2, DEPTH), -1, dtype=np.int64)
    documents = []
    for number, trace in enumerate(traces):
        by_key = sorted(range(len(trace.unit_keys)), key=trace.unit_keys.__getitem__)
        documents.append([trace.documents[at] for at in by_key])
        identifiers = np.empty(len(by_key), dtype=np.int64)
        identifiers[by_key] = np.arange(len(by_key))
        for row, positions in enumerate((_lexical_order(trace), _vector_order(trace))):
            cut = positions[:DEPTH]
            rankings[number, row, : len(cut)] = identifiers[cut]
    return _Lists(traces, documents, rankings)


def _lexical_order(trace: KeptTrace) -> list[int]:
    """Positions of the lexical list: identity matches in their order, then by BM25."""
    exact, bm25 = trace.columns["exact_rank"], trace.columns["bm25_rank"]
    behind = np.where(np.isnan(exact), bm25 + len(exact), exact)
    return _ordered(behind)


def _vector_order(trace: KeptTrace) -> list[int]:
    return _ordered(trace.columns["vector_rank"])


def _ordered(ranks: NDArray[np.float64]) -> list[int]:
    ranked = np.flatnonzero(~np.isnan(ranks))
    order: list[int] = ranked[np.argsort(ranks[ranked], kind="stable")].tolist()
    return order
