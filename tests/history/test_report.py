"""The numbers, by hand and against ir_measures."""

from __future__ import annotations

import math
from typing import Any

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_measures import RR, Qrel, R, ScoredDoc, nDCG

from clumsies.errors import InvalidRequest
from clumsies.history.comparison import compare_reports
from clumsies.history.records import (
    CaseDetail,
    CorpusResource,
    EvaluationCase,
    Judgment,
    Run,
    RunCandidate,
)
from clumsies.history.report import (
    VARIANTS,
    Report,
    VariantScores,
    percentile,
    ranked,
    report_of,
    summarised,
)


def unit(key: str, resource: str = "r1", *, content: str = "h", **ranks: Any) -> RunCandidate:
    return RunCandidate(
        1, key, resource, "org", "memory", f"{resource}.md", (), 0, 1, "u", f"{resource}-{content}",
        1, "text", False, "overlap", **ranks,
    )  # fmt: skip


def judged(relevance: int, resource: str, key: str | None = None) -> Judgment:
    return Judgment(
        f"j-{resource}-{key}", "case", resource, relevance, key is None, "text", "now", key
    )


def case(
    candidates: list[RunCandidate],
    judgments: list[Judgment],
    resources: tuple[str, ...] = ("r1", "r2", "r3"),
    **times: int,
) -> CaseDetail:
    return CaseDetail(
        EvaluationCase("case", "run", "corpus", "proj", "query", 1, "now", "now"),
        tuple(judgments),
        tuple(
            CorpusResource(n, name, "org", "memory", name, name, f"{name}-h", "")
            for n, name in enumerate(resources)
        ),
        Run("run", "proj", "query", "f", "succeeded", "now", **times),
        tuple(candidates),
    )


def scores(
    candidates: list[RunCandidate], judgments: list[Judgment], variant: str = "b4_reranked"
) -> VariantScores:
    return report_of([case(candidates, judgments)]).mean[variant]


def test_each_variant_has_its_own_rank() -> None:
    candidates = [
        unit("a", exact_rank=2, bm25_rank=1, vector_rank=3, rrf_rank=1, final_rank=4),
        unit("b", bm25_rank=1, vector_rank=2, rrf_rank=2, final_rank=3),
        unit("c", vector_rank=1, final_rank=2),
        unit("d", exact_rank=1, bm25_rank=7, final_rank=1),
    ]
    orders = {v: "".join(c.unit_key for c in ranked(candidates, v)) for v in VARIANTS}
    assert orders == {
        "b1_bm25": "bda",
        "b2_dense_vector": "cba",
        "b3_hybrid_rrf": "ab",
        "b4_reranked": "dcba",
    }


def test_gains_discounts_and_the_ideal_order() -> None:
    candidates = [unit("a", final_rank=1), unit("b", final_rank=2), unit("c", final_rank=3)]
    found = scores(candidates, [judged(1, "r1", "b"), judged(3, "r1", "c"), judged(2, "r2")])
    gained = 1 / math.log2(3) + 7 / math.log2(4)
    ideal = 7 + 3 / math.log2(3) + 1 / math.log2(4)
    assert found.ndcg_at_10 == pytest.approx(gained / ideal)
    assert found.mrr == 0.5
    assert found.recall_at_20 == pytest.approx(2 / 3)


def test_a_missed_resource_matches_any_unit_of_it_once() -> None:
    candidates = [unit("a", "r1", final_rank=1), unit("b", "r1", final_rank=2)]
    found = scores(candidates, [judged(3, "r1")])
    assert (found.recall_at_20, found.ndcg_at_10, found.mrr) == (1.0, 1.0, 1.0)
    both = scores(candidates, [judged(3, "r1"), judged(3, "r1", "a")])
    assert (both.recall_at_20, both.ndcg_at_10) == (1.0, 1.0)
    alone = scores(candidates[:1], [judged(3, "r1"), judged(3, "r1", "a")])
    assert alone.recall_at_20 == 0.5


def test_cuts_are_20_for_recall_and_10_for_the_others() -> None:
    candidates = [unit(f"u{n:02d}", final_rank=n) for n in range(1, 31)]
    eleventh = scores(candidates, [judged(3, "r1", "u11")])
    assert (eleventh.recall_at_20, eleventh.ndcg_at_10, eleventh.mrr) == (1.0, 0.0, 0.0)
    assert scores(candidates, [judged(3, "r1", "u10")]).mrr == 0.1
    assert scores(candidates, [judged(3, "r1", "u21")]).recall_at_20 == 0.0


def test_diversity_scope_violations_and_stale_results() -> None:
    candidates = [
        unit("a", "r1", final_rank=1),
        unit("b", "r1", final_rank=2),
        unit("c", "r2", content="old", final_rank=3),
        unit("d", "elsewhere", final_rank=4),
    ]
    found = scores(candidates, [])
    assert found.resource_diversity == 0.75
    assert found.scope_violation == 0.25
    assert found.stale_result == 0.25


def test_without_a_relevant_judgment_the_metrics_are_not_defined() -> None:
    found = scores([unit("a", final_rank=1)], [judged(0, "r1", "a")])
    assert (found.recall_at_20, found.ndcg_at_10, found.mrr) == (None, None, None)
    mixed = report_of(
        [
            case([unit("a", final_rank=1)], [judged(1, "r1", "a")]),
            case([unit("a", final_rank=1)], []),
        ]
    )
    assert mixed.mean["b4_reranked"].recall_at_20 == 1.0


def test_latency_of_a_variant_is_of_the_stages_on_its_way() -> None:
    times = {
        "effective_memory_us": 1, "index_ensure_us": 2, "bm25_us": 4, "embedding_us": 8,
        "vector_us": 16, "rrf_us": 32, "total_us": 1000,
    }  # fmt: skip
    [found] = report_of([case([], [], **times)]).cases
    assert found.latency_us == {
        "b1_bm25": 7,
        "b2_dense_vector": 27,
        "b3_hybrid_rrf": 63,
        "b4_reranked": 1000,
    }


@pytest.mark.parametrize(
    ("count", "share", "index"),
    [(1, 0.5, 0), (2, 0.5, 1), (4, 0.5, 2), (5, 0.5, 2), (20, 0.95, 19)],
)
def test_percentiles_are_at_the_rounded_up_index(count: int, share: float, index: int) -> None:
    assert percentile(list(reversed(range(count))), share) == index


@given(st.lists(st.integers(0, 3), min_size=1, max_size=25).filter(any))
def test_the_metrics_are_those_of_ir_measures(grades: list[int]) -> None:
    """Every unit judged; the gain is handed over as the grade, as trec_eval's is linear."""
    keys = [f"u{n:02d}" for n in range(len(grades))]
    candidates = [unit(key, final_rank=n) for n, key in enumerate(keys, 1)]
    found = scores(candidates, [judged(g, "r1", k) for g, k in zip(grades, keys, strict=True)])
    qrels = [Qrel("q", key, 2**grade - 1) for key, grade in zip(keys, grades, strict=True)]
    run = [ScoredDoc("q", key, 1.0 / rank) for rank, key in enumerate(keys, 1)]
    expected = ir_measures.calc_aggregate([R @ 20, nDCG @ 10, RR @ 10], qrels, run)
    assert found.recall_at_20 == pytest.approx(expected[R @ 20])
    assert found.ndcg_at_10 == pytest.approx(expected[nDCG @ 10])
    assert found.mrr == pytest.approx(expected[RR @ 10])


def report(candidates: list[RunCandidate], judgments: list[Judgment]) -> Report:
    return report_of([case(candidates, judgments)])


def test_a_loss_beyond_the_threshold_is_told() -> None:
    judgments = [judged(3, "r1", "a")]
    before = report([unit("a", final_rank=1), unit("b", final_rank=2)], judgments)
    after = report([unit("b", final_rank=1), unit("a", final_rank=2)], judgments)
    lost = {(c.variant, c.metric) for c in compare_reports(before, after, 0.1) if c.lost}
    assert lost == {("b4_reranked", "ndcg_at_10"), ("b4_reranked", "mrr")}
    assert not any(c.lost for c in compare_reports(before, after, 0.5))
    assert not any(c.lost for c in compare_reports(after, before, 0.0))


def test_more_stale_results_are_a_loss() -> None:
    fresh = report([unit("a", "r1", final_rank=1)], [])
    stale = report([unit("a", "r1", content="old", final_rank=1)], [])
    lost = [c.metric for c in compare_reports(fresh, stale, 0.0) if c.lost]
    assert lost == ["stale_result"]
    assert not any(c.lost for c in compare_reports(stale, fresh, 0.0))


def test_reports_of_other_cases_are_not_compared() -> None:
    with pytest.raises(InvalidRequest):
        compare_reports(report([], []), summarised([]), 0.0)
