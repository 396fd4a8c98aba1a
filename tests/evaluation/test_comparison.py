"""The verdict over two results: what is lost, what is not, and what cannot be compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clumsies.errors import InvalidRequest
from evaluation.comparison import Change, Thresholds, read_thresholds
from evaluation.comparison import compare as compare_results
from evaluation.metrics import METRICS, Composition, Scores
from evaluation.results import NoAnswer, SetResult
from evaluation.traces import VARIANTS


def make_result(name: str = "made", ndcg: float = 0.5, details: int = 0) -> SetResult:
    scores = Scores(0.9, ndcg, 0.4)
    return SetResult(
        set_name=name,
        profile="compact",
        gain="exponential",
        documents=10,
        units=12,
        queries=20,
        variants=dict.fromkeys(VARIANTS, scores),
        b4_minus_b3=None,
        answered=1.0,
        no_answer=NoAnswer(),
        latency={},
        latency_queries=0,
        skipped={},
        details={name: {f"q{n}": scores for n in range(details)} for name in VARIANTS},
    )


def compare(before: list[SetResult], after: list[SetResult], threshold: float) -> list[Change]:
    return compare_results(before, after, Thresholds(threshold))


def test_a_result_loses_nothing_to_itself() -> None:
    changes = compare([make_result()], [make_result()], 0.0)
    assert len(changes) == len(VARIANTS) * len(METRICS)
    assert not any(change.lost or change.difference for change in changes)


def test_only_a_loss_beyond_the_threshold_counts() -> None:
    before, after = make_result(ndcg=0.5), make_result(ndcg=0.48)
    assert not any(change.lost for change in compare([before], [after], 0.02))
    lost = [change for change in compare([before], [after], 0.019) if change.lost]
    assert {change.metric for change in lost} == {"ndcg_at_10"}
    assert lost[0].difference == pytest.approx(-0.02)
    assert not any(change.lost for change in compare([after], [before], 0.0))


def test_details_give_a_p_value() -> None:
    before, after = make_result(details=30), make_result(ndcg=0.6, details=30)
    by_metric = {change.metric: change for change in compare([before], [after], 0.0)}
    ndcg, recall = by_metric["ndcg_at_10"].p, by_metric["recall_at_20"].p
    assert ndcg is not None
    assert ndcg < 0.001
    assert recall == 1.0
    assert compare([make_result()], [after], 0.0)[0].p is None


def test_what_is_missing_or_scored_otherwise_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no set 'made'"):
        compare([make_result()], [make_result("other")], 0.0)
    with pytest.raises(InvalidRequest, match="exponential and linear"):
        compare([make_result()], [replace(make_result(), gain="linear")], 0.0)
    with pytest.raises(InvalidRequest, match="over 20 and 5 queries"):
        compare([make_result()], [replace(make_result(), queries=5)], 0.0)
    without = replace(make_result(), variants={"b1_bm25": Scores(1.0, 1.0, 1.0)})
    with pytest.raises(InvalidRequest, match="no variant 'b2_dense_vector'"):
        compare([make_result()], [without], 0.0)
    assert compare([make_result()], [make_result(), make_result("new")], 0.0)


LOSSES = {"a": Scores(0.90, 0.47, 0.40), "b": Scores(0.90, 0.45, 0.36)}


@pytest.mark.parametrize(
    ("named", "lost"),
    [
        ({}, {("a", "ndcg_at_10"), ("b", "ndcg_at_10"), ("b", "mrr_at_10")}),
        ({"a": 0.05}, {("b", "ndcg_at_10"), ("b", "mrr_at_10")}),
        ({"ndcg_at_10": 0.04}, {("b", "ndcg_at_10"), ("b", "mrr_at_10")}),
        ({"ndcg_at_10": 0.06}, {("b", "mrr_at_10")}),
        ({"b:mrr_at_10": 0.05}, {("a", "ndcg_at_10"), ("b", "ndcg_at_10")}),
        ({"b": 0.1, "b:mrr_at_10": 0.0}, {("a", "ndcg_at_10"), ("b", "mrr_at_10")}),
    ],
)
def test_thresholds_go_from_the_closest_name_to_the_default(
    named: dict[str, float], lost: set[tuple[str, str]]
) -> None:
    before = [make_result(name) for name in LOSSES]
    after = [
        replace(make_result(name), variants=dict.fromkeys(VARIANTS, scores))
        for name, scores in LOSSES.items()
    ]
    changes = compare_results(before, after, Thresholds(0.01, named))
    assert {(change.set_name, change.metric) for change in changes if change.lost} == lost


def test_a_fault_is_lost_by_rising() -> None:
    clean = {"b4_reranked": Composition(0.9, 0.0, 0.02)}
    faulty = {"b4_reranked": Composition(0.1, 0.05, 0.0)}
    before = replace(make_result(), composition=clean)
    after = replace(make_result(), composition=faulty)
    lost = [change for change in compare([before], [after], 0.01) if change.lost]
    assert [(change.variant, change.metric, change.p) for change in lost] == [
        ("b4_reranked", "scope_violation", None)
    ]
    assert not any(change.lost for change in compare([make_result()], [after], 0.0))


def test_thresholds_are_read_and_unknown_names_refused() -> None:
    read = read_thresholds(0.01, ["docs-qa=0.02", "docs-qa:ndcg_at_10=0.03"])
    assert read == Thresholds(0.01, {"docs-qa": 0.02, "docs-qa:ndcg_at_10": 0.03})
    for text in ("docs-qa", "docs-qa=much", "docs-qa=-0.1", "=0.1", "docs-qa=nan"):
        with pytest.raises(InvalidRequest, match="is no threshold"):
            read_thresholds(0.0, [text])
    with pytest.raises(InvalidRequest, match="'ndcg' fits nothing"):
        compare_results([make_result()], [make_result()], Thresholds(0.0, {"ndcg": 0.1}))
