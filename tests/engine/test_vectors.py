"""Snapshots against a brute-force oracle, below and above the switch-over to a graph."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clumsies.engine.exact_scan import Float32, Int64
from clumsies.engine.hnsw_graph import HnswGraph
from clumsies.engine.vectors import VectorIndex, VectorSnapshot
from clumsies.errors import IndexFailed, ModelFailed

NO_IDS = np.empty(0, dtype=np.int64)
GRAPH_THRESHOLD = 200


def unit(rows: np.ndarray) -> Float32:
    wide = rows.astype(np.float64)
    return (wide / np.linalg.norm(wide, axis=-1, keepdims=True)).astype(np.float32)


def clustered(seed: int, count: int, dimensions: int = 24, clusters: int = 40) -> Float32:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((clusters, dimensions))
    noise = 0.6 * rng.standard_normal((count, dimensions))
    return unit(centres[rng.integers(0, clusters, count)] + noise)


def ids(*values: int) -> Int64:
    return np.array(values, dtype=np.int64)


def no_vectors(dimensions: int = 24) -> Float32:
    return np.empty((0, dimensions), dtype=np.float32)


def oracle(live: dict[int, Float32], query: Float32, limit: int) -> list[tuple[int, np.float32]]:
    """Correctly rounded cosines of every row, sorted by (score descending, id ascending)."""
    wide = query.astype(np.float64)
    scored = [
        (-float(np.float32(math.fsum((row.astype(np.float64) * wide).tolist()))), row_id)
        for row_id, row in live.items()
    ]
    return [(row_id, np.float32(-score)) for score, row_id in sorted(scored)[:limit]]


def assert_exact(
    snapshot: VectorSnapshot, live: dict[int, Float32], query: Float32, limit: int
) -> None:
    found, scores = snapshot.search(query, limit)
    assert found.dtype == np.int64
    assert scores.dtype == np.float32
    assert list(zip(found.tolist(), scores, strict=True)) == oracle(live, query, limit)


def assert_sound(snapshot: VectorSnapshot, query: Float32, limit: int) -> None:
    """What an approximate answer still owes: full length, live rows once, true scores, order."""
    found, scores = snapshot.search(query, limit)
    assert len(found) == min(limit, len(snapshot))
    assert len(set(found.tolist())) == len(found)
    assert np.array_equal(scores, snapshot.scores(query, found))
    assert sorted(zip(-scores, found, strict=True)) == list(zip(-scores, found, strict=True))


def recall(snapshot: VectorSnapshot, live: dict[int, Float32], seed: int, limit: int) -> float:
    row_ids, matrix = np.array(list(live)), np.stack(list(live.values()))
    hits = 0
    queries = clustered(seed, 50, matrix.shape[1])
    for query in queries:
        best = row_ids[np.argsort(-(matrix.astype(np.float64) @ query), kind="stable")[:limit]]
        hits += len(np.intersect1d(best, snapshot.search(query, limit)[0]))
    return hits / (limit * len(queries))


def build_graph(index: VectorIndex, rows: int = 64) -> None:
    while index.tend_graph(rows):
        pass


def filled(count: int, threshold: int = GRAPH_THRESHOLD) -> tuple[VectorIndex, dict[int, Float32]]:
    vectors = clustered(5, count)
    index = VectorIndex(24, threshold)
    index.load(np.arange(1, count + 1), vectors)
    return index, dict(zip(range(1, count + 1), vectors, strict=True))


@dataclass
class Change:
    added: int
    removed_share: float


CHANGES = st.lists(
    st.builds(Change, st.integers(0, 400), st.sampled_from([0.0, 0.0, 0.05, 0.3, 1.0])),
    min_size=1,
    max_size=8,
)


def replay(
    index: VectorIndex, changes: list[Change], pool: Float32, seed: int, tend: int
) -> list[tuple[VectorSnapshot, dict[int, Float32]]]:
    """Apply the changes; every snapshot on the way with the rows it must still show at the end."""
    rng = np.random.default_rng(seed)
    live: dict[int, Float32] = {}
    history = [(index.snapshot, dict(live))]
    next_id = 1
    for change in changes:
        gone = [row_id for row_id in live if rng.random() < change.removed_share]
        next_id += int(rng.integers(0, 3))
        added = np.arange(next_id, next_id + change.added)
        vectors = pool[rng.integers(0, len(pool), change.added)]
        next_id += change.added
        index.apply(added, vectors, np.array(rng.permutation(gone), dtype=np.int64))
        for row_id in gone:
            del live[row_id]
        live.update(zip(added.tolist(), vectors, strict=True))
        history.append((index.snapshot, dict(live)))
        if tend:
            index.tend_graph(tend)
            history.append((index.snapshot, dict(live)))
    return history


@settings(max_examples=60, deadline=None)
@given(CHANGES, st.integers(0, 2**16), st.sampled_from([0, 1, 7, 60, 5000]))
def test_every_snapshot_keeps_its_exact_answer(
    changes: list[Change], seed: int, limit: int
) -> None:
    pool = clustered(seed, 12, dimensions=6)  # few distinct vectors: ties everywhere
    history = replay(VectorIndex(6), changes, pool, seed, tend=0)
    query = clustered(seed + 1, 1, dimensions=6)[0]
    for snapshot, live in history:
        assert len(snapshot) == len(live)
        assert_exact(snapshot, live, query, limit)


@settings(max_examples=40, deadline=None)
@given(CHANGES, st.integers(0, 2**16), st.sampled_from([1, 50, 2000]))
def test_every_snapshot_stays_sound_while_a_graph_is_built_extended_and_replaced(
    changes: list[Change], seed: int, tend: int
) -> None:
    index = VectorIndex(24, ann_threshold=100)
    history = replay(index, changes, clustered(seed, 3000), seed, tend)
    build_graph(index)
    history.append((index.snapshot, history[-1][1]))
    for snapshot, live in history:
        assert len(snapshot) == len(live)
        for query in clustered(seed + 1, 3):
            assert_sound(snapshot, query, 5)
            assert set(snapshot.search(query, 5)[0].tolist()) <= set(live)
            for row_id, score in zip(*snapshot.search(query, 5), strict=True):
                assert [(row_id, score)] == oracle({int(row_id): live[int(row_id)]}, query, 1)


def test_equal_vectors_tie_by_id_wherever_they_stand() -> None:
    vectors = clustered(3, 1000, dimensions=384)
    vectors[[0, 13, 500, 998, 999]] = vectors[0]
    index = VectorIndex(384)
    index.load(np.arange(10, 1010), vectors)
    found, scores = index.snapshot.search(vectors[0], 5)
    assert found.tolist() == [10, 23, 510, 1008, 1009]
    assert len(set(scores.tolist())) == 1


def test_graph_answers_with_recall_above_99_percent() -> None:
    index, live = filled(3000)
    assert not index.snapshot.approximate
    build_graph(index)
    assert index.snapshot.approximate
    assert recall(index.snapshot, live, seed=6, limit=20) >= 0.99


def test_rows_newer_than_the_graph_are_found_at_once() -> None:
    index, live = filled(1000)
    build_graph(index)
    new = clustered(8, 50)
    snapshot = index.apply(np.arange(2001, 2051), new, NO_IDS)
    assert snapshot.approximate
    for offset, vector in enumerate(new):
        assert snapshot.search(vector, 1)[0].tolist() == [2001 + offset]
    assert recall(snapshot, live | dict(enumerate(new, 2001)), seed=9, limit=10) >= 0.99


def test_a_graph_far_behind_is_not_used() -> None:
    index, live = filled(1000)
    build_graph(index)
    new = clustered(8, 400)
    snapshot = index.apply(np.arange(2001, 2401), new, NO_IDS)
    assert not snapshot.approximate
    assert_exact(snapshot, live | dict(enumerate(new, 2001)), new[0], 10)


def test_old_snapshot_is_sound_after_its_graph_took_in_newer_rows() -> None:
    index, live = filled(1000)
    build_graph(index)
    old = index.snapshot
    index.apply(np.arange(2001, 2101), clustered(8, 100), np.arange(1, 101))
    build_graph(index)
    assert recall(old, live, seed=10, limit=10) >= 0.99
    for query in clustered(11, 20):
        assert_sound(old, query, 10)


def test_removed_rows_around_the_query_do_not_crowd_out_the_live_ones() -> None:
    index, live = filled(1000)
    target = clustered(8, 1)[0]
    versions = unit(target + 0.01 * np.random.default_rng(1).standard_normal((200, 24)))
    index.apply(np.arange(2001, 2201), versions, NO_IDS)
    build_graph(index)
    snapshot = index.apply(NO_IDS, no_vectors(), np.arange(2001, 2201))
    assert snapshot.approximate
    assert_exact(snapshot, live, target, 10)


def test_same_vector_removed_and_added_again_is_found_under_its_new_id_alone() -> None:
    index, live = filled(1000)
    build_graph(index)
    last = 1000
    for row_id in range(1, 200):
        last += 1
        index.apply(ids(last), live[row_id][np.newaxis], ids(row_id))
        index.tend_graph()
    snapshot = index.snapshot
    for row_id in range(1, 200):
        found, scores = snapshot.search(live[row_id], 1)
        assert found.tolist() == [1000 + row_id]
        assert scores[0] == pytest.approx(1.0, abs=1e-6)
        with pytest.raises(KeyError):
            snapshot.scores(live[row_id], ids(row_id))


def test_graph_is_replaced_when_a_quarter_is_dead_and_dropped_when_little_is_left() -> None:
    index, _ = filled(1000)
    build_graph(index)
    first = index.graph
    index.apply(NO_IDS, no_vectors(), np.arange(1, 252))
    assert index.tend_graph(100)
    assert index.graph is first, "the old graph serves until the new one is complete"
    build_graph(index)
    assert index.graph is not None
    assert index.graph is not first
    assert len(index.graph) == len(index.snapshot) == 749
    index.apply(NO_IDS, no_vectors(), np.arange(252, 960))
    assert not index.tend_graph()
    assert index.graph is None
    assert not index.snapshot.approximate


def test_graph_that_failed_half_way_is_given_up_and_built_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index, live = filled(1000)
    build_graph(index)
    new = clustered(8, 50)
    index.apply(np.arange(1001, 1051), new, NO_IDS)
    whole = HnswGraph.add

    def half(graph: HnswGraph, row_ids: Int64, vectors: Float32) -> None:
        whole(graph, row_ids[:20], vectors[:20])
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(HnswGraph, "add", half)
        with pytest.raises(MemoryError):
            index.tend_graph()
    assert index.graph is None
    assert_exact(index.snapshot, live | dict(enumerate(new, 1001)), new[0], 10)
    build_graph(index)
    assert index.graph is not None
    assert len(index.graph) == 1050


@pytest.mark.parametrize("limit", [999, 1000, 1001, 100_000])
def test_limit_at_and_above_the_number_of_rows(limit: int) -> None:
    index, live = filled(1000)
    build_graph(index)
    assert_exact(index.snapshot, live, clustered(4, 1)[0], limit)


def test_empty_index_and_zero_limit_give_empty_answers() -> None:
    query = clustered(1, 1)[0]
    for snapshot in (VectorIndex(24).snapshot, filled(500)[0].snapshot):
        found, scores = snapshot.search(query, 0)
        assert (len(found), len(scores)) == (0, 0)
    assert len(VectorIndex(24).snapshot.search(query, 60)[0]) == 0
    with pytest.raises(ValueError, match="negative"):
        VectorIndex(24).snapshot.search(query, -1)


def test_scores_keep_the_order_asked_for_and_refuse_unknown_rows() -> None:
    index, live = filled(300)
    query = clustered(2, 1)[0]
    asked = ids(7, 300, 1, 7)
    expected = [oracle({row_id: live[row_id]}, query, 1)[0][1] for row_id in asked.tolist()]
    assert index.snapshot.scores(query, asked).tolist() == expected
    assert len(index.snapshot.scores(query, NO_IDS)) == 0
    for unknown in (0, 301, -5):
        with pytest.raises(KeyError):
            index.snapshot.scores(query, ids(1, unknown))


def broken_vectors() -> dict[str, Float32]:
    good = clustered(1, 3)
    nan, infinite, zero, long = good.copy(), good.copy(), good.copy(), good.copy()
    nan[1, 2] = np.nan
    infinite[0, 0] = np.inf
    zero[2] = 0
    long[1] *= 1.02
    return {
        "nan": nan,
        "infinite": infinite,
        "zero": zero,
        "norm": long,
        "dimension": clustered(1, 3, dimensions=25),
    }


@pytest.mark.parametrize("fault", sorted(broken_vectors()))
def test_a_corrupt_vector_is_refused_and_changes_nothing(fault: str) -> None:
    vectors = broken_vectors()[fault]
    index, live = filled(300)
    before = index.snapshot
    with pytest.raises(ModelFailed) as caught:
        index.apply(ids(301, 302, 303), vectors, ids(1))
    assert caught.value.code == "search_vector_corrupt"
    with pytest.raises(ModelFailed):
        VectorIndex(24).load(ids(1, 2, 3), vectors)
    for query in vectors:
        if np.isfinite(query).all() and abs(np.linalg.norm(query) - 1) < 0.01 and len(query) == 24:
            continue
        with pytest.raises(ModelFailed):
            before.search(query, 5)
    assert index.snapshot is before
    index.apply(ids(301), clustered(1, 1), ids(1))
    assert_exact(before, live, clustered(2, 1)[0], 20)


def test_a_norm_within_tolerance_is_accepted() -> None:
    index = VectorIndex(24)
    index.load(ids(1), clustered(1, 1) * np.float32(1.009))
    assert len(index.snapshot) == 1


@pytest.mark.parametrize(
    ("added", "removed"),
    [
        (ids(300), NO_IDS),
        (ids(302, 301), NO_IDS),
        (ids(301, 301), NO_IDS),
        (ids(-1), NO_IDS),
        (ids(301), ids(999)),
        (ids(301), ids(301)),
        (ids(301), ids(2)),
    ],
)
def test_ids_that_cannot_be_right_are_refused_and_change_nothing(
    added: Int64, removed: Int64
) -> None:
    index, live = filled(300)
    index.apply(NO_IDS, no_vectors(), ids(2))
    before = index.snapshot
    with pytest.raises(IndexFailed) as caught:
        index.apply(added, clustered(1, len(added)), removed)
    assert caught.value.code == "search_index_corrupt"
    assert index.snapshot is before
    del live[2]
    assert_exact(before, live, clustered(2, 1)[0], 300)


def test_highest_id_is_not_reused_after_its_row_and_the_buffers_are_gone() -> None:
    index, _ = filled(300)
    index.apply(NO_IDS, no_vectors(), np.arange(1, 301))
    with pytest.raises(IndexFailed):
        index.apply(ids(300), clustered(1, 1), NO_IDS)
    assert len(index.apply(ids(301), clustered(1, 1), NO_IDS)) == 1


def test_readers_see_whole_snapshots_while_the_writer_works() -> None:
    index, _ = filled(600)
    queries = clustered(12, 40)
    stop = threading.Event()
    faults: list[BaseException] = []

    def read() -> None:
        try:
            while not stop.is_set():
                for query in queries:
                    snapshot = index.snapshot
                    assert_sound(snapshot, query, 8)
        except BaseException as error:  # carried to the main thread, which fails with it
            faults.append(error)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    last = 600
    rng = np.random.default_rng(3)
    try:
        for _ in range(60):
            rows = index.snapshot.search(queries[0], 600)[0]
            gone = rng.choice(rows, 25, replace=False)
            index.apply(np.arange(last + 1, last + 31), clustered(last, 30), gone)
            last += 30
            index.tend_graph(100)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert faults == []
