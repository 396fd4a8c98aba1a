"""Sweeps over kept traces: weights of the final blend and of the first pass.

A blend's score is a weighted sum of stage scores, each standardised over the query's pool: the
candidates that the last stage saw. What is not in the pool keeps its place behind it, and an
identity-equal candidate its place before it. All queries of all traces are scored at once, so a
grid of hundreds of weights takes seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clumsies.errors import InvalidRequest
from clumsies.models.manifest import BlendStage
from evaluation.metrics import NDCG_CUT, Gain, gain_of
from evaluation.traces import KeptTrace

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FINAL_STAGES = ("bm25_score", "vector_score", "rrf_score", "late_score", "reranker_logit")
FIRST_PASS_STAGES = ("bm25_score", "vector_score", "rrf_score", "late_score")
GRID_VALUES = (0.0, 0.25, 0.5, 0.75, 1.0)

_COLUMNS: Mapping[BlendStage, str] = {
    "bm25": "bm25_score",
    "vector": "vector_score",
    "rrf": "rrf_score",
    "late": "late_score",
    "reranker": "reranker_logit",
}

# Larger than any sum of standardised scores: keeps candidates before or behind the pool.
_APART = 1e6


@dataclass(frozen=True, slots=True)
class Blend:
    """One weighting with its mean score a set and over the sets."""

    weights: tuple[float, ...]
    by_set: Mapping[str, float]
    mean: float


@dataclass(frozen=True, slots=True)
class Pools:
    """The candidates of many queries, flat, in an order that lets whole grids be scored at once.

    `scores` float64 (candidates, stages) standardised, `base` float64 (candidates,);
    `document_starts` int64 (documents,) marks where each document's candidates begin;
    `slots` int64 (documents,) its place in the padded (queries, most documents) matrices;
    `gains` float64 of that shape; `ideal` float64 (queries,); `relevant` int64 (queries,).
    """

    stages: tuple[str, ...]
    set_names: tuple[str, ...]
    scores: Floats
    base: Floats
    document_starts: Integers
    slots: Integers
    gains: Floats
    ideal: Floats
    relevant: Integers

    def ndcg(self, weights: Sequence[float]) -> Floats:
        """nDCG@10 of each query, float64 (queries,), of the order that the weights give."""
        found = np.take_along_axis(self.gains, self._order(weights)[:, :NDCG_CUT], axis=1)
        gained: Floats = found @ _discounts(found.shape[1])
        ndcg: Floats = gained / self.ideal
        return ndcg

    def recall(self, weights: Sequence[float], cut: int) -> Floats:
        """Share of the relevant documents among the first `cut`, float64 (queries,)."""
        found = np.take_along_axis(self.gains, self._order(weights)[:, :cut], axis=1)
        shares: Floats = np.count_nonzero(found > 0, axis=1) / self.relevant
        return shares

    def _order(self, weights: Sequence[float]) -> Integers:
        totals = self.base + self.scores @ np.asarray(weights, dtype=np.float64)
        padded = np.full(self.gains.size, -np.inf)
        padded[self.slots] = np.maximum.reduceat(totals, self.document_starts)
        order: Integers = np.argsort(-padded.reshape(self.gains.shape), axis=1, kind="stable")
        return order


def pools_of(
    traces: Iterable[KeptTrace], stages: tuple[str, ...], gain: Gain = "exponential"
) -> Pools:
    """The pools of the answerable traces. Raises InvalidRequest where there is none.

    A trace in which a stage scored nothing (a skipped stage) is left out: no weights change it.
    """
    used = [trace for trace in traces if trace.answerable and _has_pool(trace, stages)]
    if not used:
        raise InvalidRequest(
            "invalid_request",
            f"no answerable trace has the scores {', '.join(stages)}. Give traces of a set whose"
            " queries pass all stages.",
        )
    rows = [_pool(trace, stages) for trace in used]
    width = max(len(row.documents) for row in rows)
    gains = np.zeros((len(rows), width), dtype=np.float64)
    starts: list[Integers] = []
    slots: list[Integers] = []
    offset = 0
    for number, (row, trace) in enumerate(zip(rows, used, strict=True)):
        for place, document in enumerate(row.documents):
            gains[number, place] = gain_of(trace.judgments.get(document, 0), gain)
        starts.append(row.document_starts + offset)
        slots.append(np.arange(len(row.documents), dtype=np.int64) + number * width)
        offset += len(row.base)
    return Pools(
        stages=stages,
        set_names=tuple(trace.set_name for trace in used),
        scores=np.concatenate([row.scores for row in rows]),
        base=np.concatenate([row.base for row in rows]),
        document_starts=np.concatenate(starts),
        slots=np.concatenate(slots),
        gains=gains,
        ideal=np.array([_ideal(trace, gain) for trace in used]),
        relevant=np.array([_relevant(trace) for trace in used], dtype=np.int64),
    )


def sweep_final(pools: Pools, grid: Iterable[tuple[float, ...]]) -> list[Blend]:
    """nDCG@10 of every weighting, best mean over the sets first."""
    return _ranked(pools, ((weights, pools.ndcg(weights)) for weights in grid))


def sweep_first_pass(pools: Pools, grid: Iterable[tuple[float, ...]], cut: int) -> list[Blend]:
    """Recall at `cut` (a profile's `rerank_limit`) of every weighting, the best mean first."""
    return _ranked(pools, ((weights, pools.recall(weights, cut)) for weights in grid))


def weight_grid(stages: int, values: Sequence[float] = GRID_VALUES) -> list[tuple[float, ...]]:
    """Every weighting of `stages` stages with these values, the largest weight scaled to 1.

    Multiples of one weighting give one order, so each direction stands once.
    """
    scaled = (
        tuple(round(weight / max(weights), 6) for weight in weights)
        for weights in itertools.product(values, repeat=stages)
        if max(weights) > 0
    )
    return list(dict.fromkeys(scaled))


def pinned_weights(
    blend: Sequence[tuple[BlendStage, float]], stages: Sequence[str]
) -> tuple[float, ...]:
    """A profile's blend as a weighting of `stages`; stages that it does not name weigh 0.

    With it the sweep gives the very order of the engine. Empty for a profile without a blend.
    """
    weights = {_COLUMNS[stage]: weight for stage, weight in blend}
    largest = max(weights.values(), default=0.0)
    return tuple(weights.get(stage, 0.0) / largest for stage in stages) if largest else ()


def by_set(set_names: Sequence[str], values: Floats) -> dict[str, float]:
    """The mean of each set's values."""
    names = np.array(set_names)
    return {str(name): float(values[names == name].mean()) for name in dict.fromkeys(set_names)}


@dataclass(frozen=True, slots=True)
class _Pool:
    documents: tuple[str, ...]
    document_starts: Integers
    scores: Floats
    base: Floats


def _has_pool(trace: KeptTrace, stages: tuple[str, ...]) -> bool:
    return all(not np.all(np.isnan(trace.columns[stage])) for stage in stages)


def _pool(trace: KeptTrace, stages: tuple[str, ...]) -> _Pool:
    """One query's candidates, sorted by document; documents in the engine's final order."""
    inside = ~np.isnan(trace.columns[stages[-1]])
    scores = np.zeros((len(trace.documents), len(stages)), dtype=np.float64)
    for number, stage in enumerate(stages):
        scores[inside, number] = _standardised(trace.filled(stage)[inside])
    behind = -_APART - np.arange(len(trace.documents), dtype=np.float64)
    base = np.where(inside, 0.0, behind)
    base = np.where(trace.columns["identity_equal"] > 0, _APART, base)
    documents = tuple(dict.fromkeys(trace.documents))
    place = {document: number for number, document in enumerate(documents)}
    places = np.array([place[document] for document in trace.documents], dtype=np.int64)
    order = np.argsort(places, kind="stable")
    starts = np.searchsorted(places[order], np.arange(len(documents))).astype(np.int64)
    return _Pool(documents, starts, scores[order], base[order])


def _standardised(values: Floats) -> Floats:
    spread = values.std()
    return (values - values.mean()) / spread if spread > 0 else np.zeros_like(values)


def _ranked(pools: Pools, scored: Iterable[tuple[tuple[float, ...], Floats]]) -> list[Blend]:
    blends = []
    for weights, values in scored:
        means = by_set(pools.set_names, values)
        blends.append(Blend(weights, means, float(np.mean(list(means.values())))))
    return sorted(blends, key=lambda blend: (-blend.mean, blend.weights))


def _ideal(trace: KeptTrace, gain: Gain) -> float:
    best = sorted((gain_of(grade, gain) for grade in trace.judgments.values()), reverse=True)
    return float(np.array(best[:NDCG_CUT]) @ _discounts(len(best[:NDCG_CUT])))


def _relevant(trace: KeptTrace) -> int:
    return sum(grade >= 1 for grade in trace.judgments.values())


def _discounts(count: int) -> Floats:
    return 1.0 / np.log2(np.arange(2, count + 2, dtype=np.float64))
