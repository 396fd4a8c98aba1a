"""The metrics against ir-measures, and by hand where a hand can reach."""

from __future__ import annotations

import math

import ir_measures
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import RR, Qrel, R, ScoredDoc, nDCG

from evaluation.metrics import (
    Composition,
    Scores,
    composition,
    first_occurrences,
    is_answerable,
    mean,
    mean_composition,
    score,
)

DOCUMENTS = [f"d{number}" for number in range(40)]

rankings = st.lists(st.sampled_from(DOCUMENTS), unique=True, min_size=1)
judgments_of_a_query = st.dictionaries(
    st.sampled_from(DOCUMENTS), st.integers(0, 4), min_size=1
).filter(is_answerable)


def _oracle(ranking: list[str], judgments: dict[str, int], gains: dict[int, int]) -> Scores:
    qrels = [Qrel("q", document, grade) for document, grade in judgments.items()]
    run = [ScoredDoc("q", document, 100.0 - rank) for rank, document in enumerate(ranking)]
    ndcg = nDCG(gains=gains) @ 10
    found = ir_measures.calc_aggregate([R @ 20, ndcg, RR @ 10], qrels, run)
    return Scores(found[R @ 20], found[ndcg], found[RR @ 10])


@settings(deadline=None, max_examples=200)
@given(ranking=rankings, judgments=judgments_of_a_query)
def test_metrics_agree_with_ir_measures(ranking: list[str], judgments: dict[str, int]) -> None:
    exponential = {grade: 2**grade - 1 for grade in range(5)}
    expected = _oracle(ranking, judgments, exponential)
    assert score(ranking, judgments).as_dict() == pytest.approx(expected.as_dict())
    linear = {grade: grade for grade in range(5)}
    expected = _oracle(ranking, judgments, linear)
    assert score(ranking, judgments, "linear").as_dict() == pytest.approx(expected.as_dict())


def test_metrics_by_hand() -> None:
    found = score(["x", "b", "a"], {"a": 2, "b": 1, "c": 1, "x": 0})
    ideal = 3 + 1 / math.log2(3) + 1 / math.log2(4)
    assert found.recall_at_20 == pytest.approx(2 / 3)
    assert found.mrr_at_10 == 0.5
    assert found.ndcg_at_10 == pytest.approx((1 / math.log2(3) + 3 / math.log2(4)) / ideal)


def test_cuts_are_after_20_and_after_10() -> None:
    ranking = [f"n{number}" for number in range(19)]
    assert score([*ranking, "a"], {"a": 1}) == Scores(1.0, 0.0, 0.0)
    assert score([*ranking, "n", "a"], {"a": 1}) == Scores(0.0, 0.0, 0.0)
    assert score([*ranking[:9], "a"], {"a": 1}).mrr_at_10 == pytest.approx(0.1)
    assert score([*ranking[:10], "a"], {"a": 1}).mrr_at_10 == 0.0


def test_a_query_without_an_answer_has_no_metrics() -> None:
    assert not is_answerable({"a": 0})
    with pytest.raises(ValueError, match="not defined"):
        score(["a"], {"a": 0})


def test_the_mean_is_over_queries() -> None:
    assert mean([Scores(1.0, 0.5, 0.0), Scores(0.0, 0.5, 1.0)]) == Scores(0.5, 0.5, 0.5)
    assert mean([]) == Scores(0.0, 0.0, 0.0)


def test_a_document_stands_where_its_best_unit_stands() -> None:
    assert first_occurrences(["b", "a", "b", "c", "a"]) == ["b", "a", "c"]


def test_composition_counts_the_first_20_candidates() -> None:
    documents = ["a", "a", "b", "c"] + ["d"] * 16 + ["e"] * 5
    outside = [False, False, True] + [False] * 17 + [True] * 5
    stale = [False, True, True, True] + [False] * 16 + [True] * 5
    found = composition(documents, outside, stale)
    assert found == Composition(4 / 20, 1 / 20, 2 / 20)
    assert composition(["a", "b"], [False, False], [False, True]) == Composition(1.0, 0.0, 0.5)
    with pytest.raises(ValueError, match="not defined"):
        composition([], [], [])


def test_the_mean_of_compositions_is_over_queries() -> None:
    found = [Composition(1.0, 0.5, 0.0), Composition(0.5, 0.0, 0.5)]
    assert mean_composition(found) == Composition(0.75, 0.25, 0.25)
    assert mean_composition([]) is None
