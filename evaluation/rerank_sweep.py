"""How many candidates are worth reranking: kept traces, as if only the best n had been reranked.

A trace tells the cross-encoder's score of every candidate that the engine reranked, so any smaller
number can be judged from it; `run --rerank-limit` keeps traces of a larger one. Candidates beyond
the n keep the order of the first pass, behind the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clumsies.engine.blend import blended
from clumsies.errors import InvalidRequest
from clumsies.models.manifest import BlendStage, Profile
from evaluation.metrics import NDCG_CUT, Gain, first_occurrences, ndcg_at
from evaluation.significance import Interval, bootstrap_mean_of_means
from evaluation.traces import KeptTrace

Floats = NDArray[np.float64]

LIMITS = (4, 8, 12, 16, 20, 24, 32, 40, 60)
_COLUMNS: dict[BlendStage, str] = {
    "bm25": "bm25_score",
    "vector": "vector_score",
    "rrf": "rrf_score",
    "late": "late_score",
    "reranker": "reranker_logit",
}


@dataclass(frozen=True, slots=True)
class LimitSetting:
    """Mean nDCG@10 over the sets with so many reranked, and its difference from the most."""

    limit: int
    ndcg_at_10: float
    difference: Interval


def sweep_limits(
    traces: Iterable[KeptTrace],
    profile: Profile,
    *,
    limits: Sequence[int] = LIMITS,
    gain: Gain = "exponential",
) -> list[LimitSetting]:
    """Every limit up to what the traces have, the smallest first.

    Raises InvalidRequest where nothing was reranked.
    """
    used = [trace for trace in traces if trace.answerable and _reranked(trace).any()]
    if not used:
        raise InvalidRequest(
            "invalid_request",
            "no answerable query was reranked. Give traces of a set with judgments.",
        )
    most = max(int(_reranked(trace).sum()) for trace in used)
    wanted = [*(limit for limit in limits if limit < most), most]
    found = {limit: _by_set(used, profile, limit, gain) for limit in wanted}
    return [
        LimitSetting(
            limit,
            float(np.mean([values.mean() for values in of_sets.values()])),
            bootstrap_mean_of_means([of_sets[name] - found[most][name] for name in of_sets]),
        )
        for limit, of_sets in found.items()
    ]


def order_of(trace: KeptTrace, profile: Profile, limit: int) -> list[int]:
    """Positions of the reranked candidates as the final order has them with `limit` reranked."""
    rows = np.flatnonzero(_reranked(trace))
    equal = trace.columns["identity_equal"][rows] > 0
    first = _blend(trace, rows, profile.first_pass_weights)
    by_first = rows[np.lexsort((np.arange(len(rows)), -first, ~equal))]
    chosen, rest = by_first[:limit], by_first[limit:]
    final = _blend(trace, chosen, profile.blend_weights)
    is_equal = trace.columns["identity_equal"][chosen] > 0
    ordered = chosen[np.lexsort((-trace.filled("rrf_score")[chosen], -final, ~is_equal))]
    return [*ordered.tolist(), *rest.tolist()]


def _by_set(
    traces: Sequence[KeptTrace], profile: Profile, limit: int, gain: Gain
) -> dict[str, Floats]:
    by_set: dict[str, list[float]] = {}
    for trace in traces:
        ranking = first_occurrences(trace.documents[at] for at in order_of(trace, profile, limit))
        value = ndcg_at(ranking, trace.judgments, NDCG_CUT, gain)
        by_set.setdefault(trace.set_name, []).append(value)
    return {name: np.array(values) for name, values in by_set.items()}


def _reranked(trace: KeptTrace) -> NDArray[np.bool_]:
    return ~np.isnan(trace.columns["reranker_logit"])


def _blend(
    trace: KeptTrace, rows: NDArray[np.int64], weights: Sequence[tuple[BlendStage, float]]
) -> Floats:
    stages: dict[BlendStage, Sequence[float]] = {
        name: trace.filled(column)[rows].tolist() for name, column in _COLUMNS.items()
    }
    return blended(stages, weights)
