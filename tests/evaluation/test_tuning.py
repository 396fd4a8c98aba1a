"""Sweeps over kept traces, beside plain-Python computations of the same orders."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from clumsies.engine.trace import StageTimes
from clumsies.errors import InvalidRequest
from clumsies.models.manifest import COMPACT, MULTILINGUAL
from evaluation.fusion_sweep import sweep_fusion
from evaluation.metrics import Gain, first_occurrences, recall_at, score
from evaluation.traces import COLUMNS, KeptTrace
from evaluation.tuning import (
    FINAL_STAGES,
    FIRST_PASS_STAGES,
    pinned_weights,
    pools_of,
    sweep_final,
    sweep_first_pass,
    weight_grid,
)


def make_trace(
    seed: int, *, set_name: str = "made", units: int = 40, pool: int = 12, answerable: bool = True
) -> KeptTrace:
    """Random scores with holes; three units a document; some documents relevant."""
    generator = np.random.default_rng(seed)
    columns = {name: np.full(units, np.nan) for name in COLUMNS}
    for stage in ("bm25", "vector"):
        scored = generator.permutation(units)[: units * 2 // 3]
        columns[f"{stage}_score"][scored] = generator.random(len(scored))
        columns[f"{stage}_rank"] = _ranks(columns[f"{stage}_score"])
    columns["relevance"][:pool] = 0.5
    columns["coverage"][:pool] = generator.random(pool)
    columns["late_score"] = generator.random(units)
    columns["reranker_logit"][:pool] = generator.normal(size=pool)
    columns["final_rank"] = np.arange(1.0, units + 1)
    columns["identity_equal"] = np.zeros(units)
    columns["selected"] = np.zeros(units)
    documents = tuple(f"d{number}" for number in generator.permutation(units) // 3)
    judged = generator.choice(sorted(set(documents)), size=4, replace=False)
    judgments = {str(name): grade for grade, name in enumerate(judged)} if answerable else {}
    columns["rrf_score"] = generator.random(units)
    keys = tuple(f"u{number:03d}" for number in generator.permutation(units))
    return KeptTrace(
        set_name, "compact", f"q{seed}", judgments, (), StageTimes(), keys, documents, columns
    )


def _ranks(scores: np.ndarray) -> np.ndarray:
    ranks = np.full(len(scores), np.nan)
    order = np.argsort(-scores, kind="stable")
    for rank, at in enumerate(order, start=1):
        if not math.isnan(scores[at]):
            ranks[at] = rank
    return ranks


def _plain_order(trace: KeptTrace, stages: Sequence[str], weights: Sequence[float]) -> list[str]:
    """Blend the pool by hand; behind it the rest in final order; equal identities first."""
    pool = [at for at, value in enumerate(trace.columns[stages[-1]]) if not math.isnan(value)]
    totals = dict.fromkeys(pool, 0.0)
    for stage, weight in zip(stages, weights, strict=True):
        known = [value for value in trace.columns[stage] if not math.isnan(value)]
        raw = {at: trace.columns[stage][at] for at in pool}
        absent = 0.0 if stage == "bm25_score" else min(known)
        filled = {at: absent if math.isnan(value) else value for at, value in raw.items()}
        centre = sum(filled.values()) / len(pool)
        spread = math.sqrt(sum((value - centre) ** 2 for value in filled.values()) / len(pool))
        for at in pool:
            totals[at] += weight * (filled[at] - centre) / spread
    rest = [at for at in range(len(trace.unit_keys)) if at not in totals]
    order = [*sorted(pool, key=lambda at: -totals[at]), *rest]
    equal = [at for at in order if trace.columns["identity_equal"][at] > 0]
    return first_occurrences(trace.documents[at] for at in dict.fromkeys([*equal, *order]))


WEIGHTINGS = [(1.0,) * 5, (1.0, 0.0, 0.75, 0.25, 0.5), (0.0, 0.0, 0.0, 0.0, 1.0)]


@pytest.mark.parametrize("weights", WEIGHTINGS)
@pytest.mark.parametrize("gain", ["exponential", "linear"])
def test_pools_score_every_query_as_the_plain_order_does(
    weights: tuple[float, ...], gain: Gain
) -> None:
    traces = [make_trace(seed, units=20 + seed) for seed in range(12)]
    traces[3].columns["identity_equal"][17] = 1.0
    found = pools_of(traces, FINAL_STAGES, gain).ndcg(weights)
    orders = [_plain_order(trace, FINAL_STAGES, weights) for trace in traces]
    expected = [
        score(order, trace.judgments, gain).ndcg_at_10
        for order, trace in zip(orders, traces, strict=True)
    ]
    assert found == pytest.approx(expected)


def test_the_first_pass_is_scored_by_recall_at_its_cut() -> None:
    traces = [make_trace(seed) for seed in range(8)]
    weights = (1.0, 0.5, 0.75, 0.25)
    found = pools_of(traces, FIRST_PASS_STAGES).recall(weights, 5)
    expected = [
        recall_at(_plain_order(trace, FIRST_PASS_STAGES, weights), trace.judgments, 5)
        for trace in traces
    ]
    assert found == pytest.approx(expected)


def test_a_sweep_ranks_by_the_mean_over_sets_and_finds_the_telling_stage() -> None:
    traces = [make_trace(seed, set_name="large") for seed in range(20)]
    traces += [make_trace(seed, set_name="little") for seed in range(20, 24)]
    for trace in traces:
        relevant = [trace.judgments.get(document, 0) for document in trace.documents]
        telling = trace.columns["late_score"]
        telling[:] = np.array(relevant, dtype=np.float64) + telling / 100.0
    values = (0.0, 0.5, 1.0)
    blends = sweep_final(pools_of(traces, FINAL_STAGES), weight_grid(5, values))
    best = blends[0]
    assert best.weights[3] == 1.0
    assert list(best.by_set) == ["large", "little"]
    assert best.mean == pytest.approx(sum(best.by_set.values()) / 2)
    assert [blend.mean for blend in blends] == sorted((b.mean for b in blends), reverse=True)
    firsts = sweep_first_pass(pools_of(traces, FIRST_PASS_STAGES), weight_grid(4, values), cut=3)
    assert firsts[0].weights[3] == 1.0


def test_a_profiles_blend_is_a_weighting_of_the_stages() -> None:
    blend = COMPACT.blend_weights
    assert pinned_weights(blend, FINAL_STAGES) == (1.0, 0.0, 1.0, 1.0, 1.0)
    assert pinned_weights([("late", 4.0), ("bm25", 1.0)], FIRST_PASS_STAGES) == (0.25, 0, 0, 1.0)
    assert pinned_weights(MULTILINGUAL.blend_weights, FINAL_STAGES) == ()


def test_a_grid_holds_each_direction_once() -> None:
    grid = weight_grid(2, (0.0, 0.5, 1.0))
    assert grid == [(0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (0.5, 1.0), (1.0, 0.5)]


def test_traces_that_no_weights_can_change_are_left_out() -> None:
    skipped = make_trace(1)
    skipped.columns["reranker_logit"][:] = np.nan
    unanswerable = make_trace(2, answerable=False)
    pools = pools_of([make_trace(0), skipped, unanswerable], FINAL_STAGES)
    assert pools.set_names == ("made",)
    with pytest.raises(InvalidRequest, match="reranker_logit"):
        pools_of([skipped, unanswerable], FINAL_STAGES)


def _plain_fusion(trace: KeptTrace, rrf_k: float, weight: float) -> list[str]:
    columns = trace.columns
    lexical = columns["bm25_rank"]
    keys = []
    for at in range(len(trace.unit_keys)):
        pairs = ((lexical[at], 1.0), (columns["vector_rank"][at], weight))
        held = [(rank, factor) for rank, factor in pairs if not math.isnan(rank)]
        if held:
            total = sum(factor / (rrf_k + rank) for rank, factor in held)
            keys.append((-total, min(rank for rank, _ in held), trace.unit_keys[at], at))
    return first_occurrences(trace.documents[at] for *_, at in sorted(keys))


def test_the_fusion_sweep_agrees_with_fusion_by_hand() -> None:
    traces = [make_trace(seed) for seed in range(10)]
    settings = sweep_fusion(traces, rrf_ks=(1.0, 60.0), vector_weights=(0.5, 1.0))
    assert len(settings) == 4
    for one in settings:
        scores = [
            score(_plain_fusion(trace, one.rrf_k, one.vector_weight), trace.judgments)
            for trace in traces
        ]
        assert one.ndcg_at_10 == pytest.approx(sum(s.ndcg_at_10 for s in scores) / 10)
        assert one.recall_at_20 == pytest.approx(sum(s.recall_at_20 for s in scores) / 10)


def test_identity_matches_lead_the_lexical_list() -> None:
    trace = make_trace(4)
    trace.columns["vector_rank"][:] = np.nan
    (last,) = np.flatnonzero(trace.columns["bm25_rank"] == 26)
    trace.columns["exact_rank"][last] = 1.0
    relevant = KeptTrace(
        "made",
        "compact",
        "q",
        {trace.documents[last]: 1},
        (),
        trace.times,
        trace.unit_keys,
        trace.documents,
        trace.columns,
    )
    (one,) = sweep_fusion([relevant], rrf_ks=(10.0,), vector_weights=(1.0,))
    assert one.ndcg_at_10 == 1.0


def test_fusion_needs_an_answerable_trace() -> None:
    with pytest.raises(InvalidRequest, match="no trace has an answer"):
        sweep_fusion([make_trace(1, answerable=False)])
