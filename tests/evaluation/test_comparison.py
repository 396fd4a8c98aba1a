"""The verdict over two results: what is lost, what is not, and what cannot be compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clumsies.errors import InvalidRequest
from evaluation.comparison import compare
from evaluation.metrics import METRICS, Scores
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
    without = replace(make_result(), variants={"b1_bm25": Scores(1.0, 1.0, 1.0)})
    with pytest.raises(InvalidRequest, match="no variant 'b2_dense_vector'"):
        compare([make_result()], [without], 0.0)
    assert compare([make_result()], [make_result(), make_result("new")], 0.0)
