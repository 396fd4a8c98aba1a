"""The logistic fit against known truths, and what floors do."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from clumsies.errors import InvalidRequest
from evaluation.calibration import (
    Calibration,
    Examples,
    area_under_curve,
    cross_validated,
    examples_of,
    fit,
    floors,
    log_loss,
    without_answers,
)
from tests.evaluation.test_tuning import make_trace

Array = np.ndarray


def _examples(features: Array, relevant: Array, answerable: Array | None = None) -> Examples:
    names = tuple(f"f{number}" for number in range(features.shape[1]))
    pools = tuple(row[np.newaxis, :] for row in features)
    return Examples(
        names, features, relevant, relevant if answerable is None else answerable, pools
    )


@pytest.fixture
def drawn() -> Examples:
    """2,000 draws from sigmoid(-1 + 2 x - 0.03 y), with y on another scale."""
    generator = np.random.default_rng(11)
    features = np.column_stack([generator.normal(size=2000), generator.normal(50, 20, size=2000)])
    chance = 1 / (1 + np.exp(-(-1 + 2 * features[:, 0] - 0.03 * features[:, 1])))
    return _examples(features, generator.random(2000) < chance)


def test_the_fit_finds_the_weights_in_raw_units(drawn: Examples) -> None:
    fitted = fit(drawn)
    assert fitted.intercept == pytest.approx(-1, abs=0.5)
    assert fitted.weights == pytest.approx((2, -0.03), rel=0.25)


def test_without_a_ridge_the_fit_is_the_maximum_of_the_likelihood(drawn: Examples) -> None:
    scale = np.array([1.0, 20.0])

    def loss(weights: Array) -> float:
        logits = weights[0] + (drawn.features / scale) @ weights[1:]
        return float(np.logaddexp(0, np.where(drawn.relevant, -logits, logits)).mean())

    best = optimize.minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-9}).fun
    assert log_loss(fit(drawn, 0.0).relevance(drawn.features), drawn.relevant) <= best + 1e-9


def test_separable_examples_give_finite_weights() -> None:
    features = np.array([[0.0], [1.0], [10.0], [11.0]])
    fitted = fit(_examples(features, np.array([False, False, True, True])))
    relevance = fitted.relevance(features)
    assert np.isfinite(fitted.weights).all()
    assert (relevance[:2] < 0.2).all()
    assert (relevance[2:] > 0.8).all()


def test_a_feature_that_never_varies_gets_no_weight(drawn: Examples) -> None:
    constant = np.column_stack([drawn.features[:, 0], np.full(2000, 7.0)])
    assert fit(_examples(constant, drawn.relevant)).weights[1] == 0.0


def test_relevance_stays_finite_at_both_ends() -> None:
    calibration = Calibration(("f",), (1.0,), 0.0)
    assert calibration.relevance(np.array([[-1e4], [0.0], [1e4]])).tolist() == [0.0, 0.5, 1.0]


def test_cross_validation_does_not_see_the_query() -> None:
    generator = np.random.default_rng(3)
    noise = _examples(generator.normal(size=(60, 20)), generator.random(60) < 0.5)
    seen = area_under_curve(fit(noise).relevance(noise.features), noise.relevant)
    unseen = area_under_curve(cross_validated(noise), noise.relevant)
    assert seen > 0.75
    assert unseen < seen


def test_area_under_curve_counts_pairs() -> None:
    relevant = np.array([True, True, False, False, False])
    values = np.array([0.9, 0.4, 0.4, 0.1, 0.5])
    assert area_under_curve(values, relevant) == pytest.approx((3 + 0.5 + 1) / 6)


def test_floors_count_tops_and_whole_pools() -> None:
    calibration = Calibration(("f",), (1.0,), 0.0)
    pools = (
        np.array([[2.0], [3.0]]),
        np.array([[-2.0], [2.0]]),
        np.array([[-2.0], [-3.0]]),
        np.array([[-2.0], [2.0]]),
    )
    examples = Examples(
        ("f",),
        np.array([pool[0] for pool in pools]),
        np.array([True, True, False, False]),
        np.array([True, True, False, False]),
        pools,
    )
    (floor,) = floors(examples, calibration, [0.5])
    assert (floor.precision, floor.recall) == (1.0, 0.5)
    assert (floor.answered, floor.rightly_empty) == (1.0, 0.5)


def test_examples_are_the_top_of_the_final_order() -> None:
    traces = [make_trace(seed) for seed in range(30)]
    traces += [make_trace(seed, answerable=False) for seed in range(30, 40)]
    examples = examples_of(traces)
    assert examples.features.shape == (40, 4)
    assert int(examples.answerable.sum()) == 30
    first = traces[0]
    assert examples.relevant[0] == (first.judgments.get(first.documents[0], 0) >= 1)
    assert examples.features[0, 0] == first.columns["reranker_logit"][0]
    assert {len(pool) for pool in examples.pools} == {12}
    assert examples.only(["late_score"]).features[0, 0] == first.columns["late_score"][0]


def test_a_query_whose_answers_are_left_out_has_none() -> None:
    traces = [make_trace(seed) for seed in range(20)]
    trace = next(t for t in traces if t.judgments.get(t.documents[0], 0) >= 1)
    relevant = {name for name, grade in trace.judgments.items() if grade >= 1}
    left = without_answers(trace)
    assert trace.answerable
    assert not left.answerable
    examples = examples_of([*traces, left])
    assert examples.answerable.tolist() == [True] * 20 + [False]
    assert not examples.relevant[-1]
    pool = [at for at in range(12) if trace.documents[at] not in relevant]
    assert len(pool) < 12
    assert len(examples.pools[-1]) == len(pool)
    assert examples.features[-1, 0] == trace.columns["reranker_logit"][pool[0]]


def test_both_kinds_of_query_are_needed() -> None:
    with pytest.raises(InvalidRequest, match="cross"):
        examples_of([make_trace(seed, answerable=False) for seed in range(5)])
    with pytest.raises(InvalidRequest, match="cross"):
        examples_of([])
