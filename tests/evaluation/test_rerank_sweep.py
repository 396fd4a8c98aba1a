"""Fewer candidates reranked, judged from a trace of more."""

from __future__ import annotations

import numpy as np
import pytest

from clumsies.engine.blend import standardised
from clumsies.errors import InvalidRequest
from clumsies.models.manifest import COMPACT
from evaluation.metrics import first_occurrences, ndcg_at
from evaluation.rerank_sweep import order_of, sweep_limits
from evaluation.traces import KeptTrace
from tests.evaluation.test_tuning import make_trace

POOL = 12
FIRST = ("bm25_score", "vector_score", "rrf_score", "late_score")
FINAL = ("bm25_score", "rrf_score", "late_score", "reranker_logit")


def by_hand(trace: KeptTrace, rows: list[int], stages: tuple[str, ...]) -> list[int]:
    """The rows by the sum of their standardised scores, equal identities first."""
    total = sum(standardised([trace.filled(stage)[at] for at in rows]) for stage in stages)
    score = {at: float(value) for at, value in zip(rows, np.asarray(total), strict=True)}
    return sorted(rows, key=lambda at: (not trace.columns["identity_equal"][at], -score[at]))


@pytest.mark.parametrize("limit", [1, 5, POOL, 60])
@pytest.mark.parametrize("seed", range(6))
def test_the_best_of_the_first_pass_are_ordered_by_the_blend(seed: int, limit: int) -> None:
    trace = make_trace(seed)
    trace.columns["identity_equal"][seed] = 1.0
    first = by_hand(trace, list(range(POOL)), FIRST)
    expected = [*by_hand(trace, first[:limit], FINAL), *first[limit:]]
    assert order_of(trace, COMPACT, limit) == expected


def test_a_limit_is_the_mean_of_the_sets_beside_the_largest() -> None:
    traces = [make_trace(seed, set_name="one") for seed in range(5)]
    traces += [make_trace(seed, set_name="two") for seed in range(5, 8)]
    traces.append(make_trace(9, answerable=False))
    settings = sweep_limits(traces, COMPACT, limits=(4, 8, 16))
    assert [one.limit for one in settings] == [4, 8, POOL]
    for one in settings:
        means = []
        for name in ("one", "two"):
            values = [
                ndcg_at(
                    first_occurrences(t.documents[at] for at in order_of(t, COMPACT, one.limit)),
                    t.judgments,
                    10,
                )
                for t in traces
                if t.set_name == name and t.answerable
            ]
            means.append(np.mean(values))
        assert one.ndcg_at_10 == pytest.approx(np.mean(means))
    gap = settings[-1].difference
    assert (gap.mean, gap.low, gap.high) == (0.0, 0.0, 0.0)
    assert settings[0].difference.mean == pytest.approx(
        settings[0].ndcg_at_10 - settings[-1].ndcg_at_10
    )


def test_traces_without_a_reranked_answer_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        sweep_limits([make_trace(1, answerable=False)], COMPACT)
