"""Rank fusion, single and batched, equal to the oracle bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clumsies.engine.fusion import reciprocal_rank_fusion, reciprocal_rank_fusion_batch
from tests.effort import at_least

from . import fusion_oracle

NARROW = st.integers(0, 12)
WIDE = st.integers(0, 2**63 - 1)
STRIDED = st.integers(0, 40).map(lambda i: i << 32)
RANKING = st.one_of(*(st.lists(ids, unique=True, max_size=40) for ids in (NARROW, WIDE, STRIDED)))
RANKINGS = st.lists(RANKING, max_size=6)
RRF_K = st.one_of(st.sampled_from([0.0, 1.0, 10.0, 60.0]), st.floats(0.0, 1e6))
WEIGHT = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.0, 1e3))


def single(
    rankings: Sequence[Sequence[int]], rrf_k: float, weights: Sequence[float] | None = None
) -> list[tuple[int, float]]:
    arrays = [np.array(ranking, dtype=np.int64) for ranking in rankings]
    ids, scores = reciprocal_rank_fusion(arrays, rrf_k, weights)
    assert (ids.dtype.name, scores.dtype.name) == ("int64", "float64")
    return list(zip(ids.tolist(), scores.tolist(), strict=True))


def padded(queries: Sequence[Sequence[Sequence[int]]], depth: int) -> npt.NDArray[np.int64]:
    lists = max((len(rankings) for rankings in queries), default=0)
    rows = np.full((len(queries), lists, depth), -1, dtype=np.int64)
    for q, rankings in enumerate(queries):
        for i, ranking in enumerate(rankings):
            rows[q, i, : len(ranking)] = ranking
    return rows


@settings(max_examples=at_least(500), deadline=None)
@given(RANKINGS, RRF_K)
@example([], 10.0)
@example([[]], 10.0)
@example([[3, 1, 2]], 10.0)
@example([[1, 2], [2, 1]], 60.0)
@example([list(range(40)), list(range(39, -1, -1))], 10.0)
def test_one_query_equals_the_oracle(rankings: list[list[int]], rrf_k: float) -> None:
    assert single(rankings, rrf_k) == fusion_oracle.fuse(rankings, rrf_k)


@settings(max_examples=at_least(300), deadline=None)
@given(RRF_K, st.lists(st.tuples(RANKING, WEIGHT), min_size=1, max_size=5))
def test_weights_equal_the_oracle(rrf_k: float, pairs: list[tuple[list[int], float]]) -> None:
    rankings = [ranking for ranking, _ in pairs]
    weights = [weight for _, weight in pairs]
    assert single(rankings, rrf_k, weights) == fusion_oracle.fuse(rankings, rrf_k, weights)


@settings(max_examples=at_least(200), deadline=None)
@given(st.lists(RANKINGS, max_size=8), RRF_K, st.integers(0, 3))
def test_a_batch_equals_the_oracle(
    queries: list[list[list[int]]], rrf_k: float, more_depth: int
) -> None:
    rows = padded(queries, 40 + more_depth)
    ids, scores, counts = reciprocal_rank_fusion_batch(rows, rrf_k)
    assert ids.shape == scores.shape == (rows.shape[0], rows.shape[1] * rows.shape[2])
    assert [a.dtype.name for a in (ids, scores, counts)] == ["int64", "float64", "int64"]
    for q, rankings in enumerate(queries):
        n = int(counts[q])
        found = list(zip(ids[q, :n].tolist(), scores[q, :n].tolist(), strict=True))
        assert found == fusion_oracle.fuse(rankings, rrf_k)
        assert np.all(ids[q, n:] == -1)
        assert not np.any(scores[q, n:])


def test_thousands_of_queries_equal_the_oracle() -> None:
    random = np.random.default_rng(5)
    rows = np.argsort(random.random((3000, 3, 90)), axis=2)[:, :, :30].astype(np.int64)
    rows[::7, 1, 11:] = -1
    rows[::5, 2, :] = -1
    weights = [1.0, 0.5, 0.7]
    ids, scores, counts = reciprocal_rank_fusion_batch(rows, 10.0, weights)
    for q in range(rows.shape[0]):
        rankings = [[item for item in row if item >= 0] for row in rows[q].tolist()]
        n = int(counts[q])
        found = list(zip(ids[q, :n].tolist(), scores[q, :n].tolist(), strict=True))
        assert found == fusion_oracle.fuse(rankings, 10.0, weights)


def test_equal_scores_go_by_best_rank_then_by_id() -> None:
    assert [i for i, _ in single([[9, 4], [4, 9]], 10.0)] == [4, 9]
    assert [i for i, _ in single([[7], [5], [6]], 10.0)] == [5, 6, 7]
    # 1/(0+2) + 1/(0+2) = 1/(0+1): id 3 has the better single rank, id 1 the smaller id
    assert single([[8, 1], [9, 1], [3]], 0.0) == [(3, 1.0), (8, 1.0), (9, 1.0), (1, 1.0)]


def test_a_small_constant_lets_the_first_rank_beat_two_last_ranks() -> None:
    first, second = list(range(60)), [*range(100, 159), 59]
    assert single([first, second], 10.0)[0][0] == 0
    assert single([first, second], 60.0)[0][0] == 59


@pytest.mark.parametrize(
    "rankings",
    [
        [np.array([1, 2, 1])],
        [np.array([1]), np.array([2, 2])],
        [np.array([3, -1])],
        [np.array([-5])],
        [np.array([1.0, 2.0])],
        [np.array([1, 2], dtype=np.int32)],
        [np.array([[1, 2]])],
    ],
)
def test_a_ranking_that_is_none_is_refused(rankings: list[npt.NDArray[np.int64]]) -> None:
    with pytest.raises(ValueError, match="ranking"):
        reciprocal_rank_fusion(rankings)


@pytest.mark.parametrize(
    "row",
    [[[1, 1, -1]], [[1, -1, 2]], [[-2, -1, -1]], [[1, 2, -3]], [[1, -1, -2]]],
)
def test_a_batch_with_a_bad_row_is_refused(row: list[list[int]]) -> None:
    good = [[4, 5, -1]]
    with pytest.raises(ValueError, match="query 1"):
        reciprocal_rank_fusion_batch(np.array([good, row]))


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((1, 2), dtype=np.int64),
        np.zeros((1, 2, 1), dtype=np.int32),
        np.arange(12, dtype=np.int64).reshape(1, 3, 4).transpose(0, 2, 1),
    ],
)
def test_a_batch_of_another_form_is_refused(rows: npt.NDArray[np.int64]) -> None:
    with pytest.raises(ValueError, match="rankings must be"):
        reciprocal_rank_fusion_batch(rows)


@pytest.mark.parametrize(
    ("rrf_k", "weights"),
    [
        (-1.0, None),
        (float("nan"), None),
        (float("inf"), None),
        (10.0, [1.0]),
        (10.0, [1.0, -0.5]),
        (10.0, [1.0, float("nan")]),
    ],
)
def test_bad_parameters_are_refused(rrf_k: float, weights: list[float] | None) -> None:
    with pytest.raises(ValueError, match=r"rrf_k|weights"):
        reciprocal_rank_fusion([np.array([1]), np.array([2])], rrf_k, weights)
    with pytest.raises(ValueError, match=r"rrf_k|weights"):
        reciprocal_rank_fusion_batch(np.array([[[1], [2]]]), rrf_k, weights)


def test_strided_and_read_only_rankings_are_taken() -> None:
    strided = np.arange(20, dtype=np.int64)[::3]
    strided.flags.writeable = False
    ids, _ = reciprocal_rank_fusion([strided])
    assert ids.tolist() == strided.tolist()
    batch = np.arange(6, dtype=np.int64).reshape(1, 2, 3)
    batch.flags.writeable = False
    assert reciprocal_rank_fusion_batch(batch)[2].tolist() == [6]


@pytest.mark.parametrize("shape", [(0, 2, 3), (2, 0, 3), (2, 3, 0)])
def test_an_empty_batch_gives_nothing(shape: tuple[int, int, int]) -> None:
    ids, scores, counts = reciprocal_rank_fusion_batch(np.zeros(shape, dtype=np.int64))
    assert ids.size == scores.size == 0
    assert counts.tolist() == [0] * shape[0]
