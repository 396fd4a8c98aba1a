"""Judging files on pools: orders, blends, differences, and pools out of kept traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from evaluation.datasets import read_set
from evaluation.harness import Settings, run_set
from evaluation.results import result_of
from evaluation.train_reranker import builder, pools, report
from evaluation.train_reranker.pools import Pool
from tests.evaluation.train_reranker.conftest import MODELS, TOKENIZER


def _pool(
    name: str, query: str, relevant: str, late: list[float], first: int | None = None
) -> Pool:
    documents = tuple("abcd")
    flat = np.zeros(4)
    return Pool(
        set_name=name,
        query_id=query,
        query=query,
        judgments={relevant: 1},
        documents=documents,
        texts=documents,
        scores={
            "rrf_score": np.array([4.0, 3.0, 2.0, 1.0]),
            "bm25_score": flat,
            "vector_score": flat,
            "late_score": np.array(late),
            "reranker_logit": flat,
        },
        first=tuple(number == first for number in range(4)),
    )


def test_ties_stay_in_fused_order_and_identity_matches_come_first() -> None:
    assert report.ndcg(_pool("s", "q", "a", [0, 0, 0, 0]), np.zeros(4)) == 1.0
    second = 1.0 / np.log2(3)
    pinned = _pool("s", "q", "a", [0, 0, 0, 0], first=3)
    assert report.ndcg(pinned, np.array([9.0, 0.0, 0.0, 0.0])) == pytest.approx(second)


def test_two_units_of_a_document_count_once() -> None:
    pool = _pool("s", "q", "b", [0, 0, 0, 0])
    doubled = Pool(
        pool.set_name,
        pool.query_id,
        pool.query,
        pool.judgments,
        ("a", "a", "b", "c"),
        pool.texts,
        pool.scores,
        pool.first,
    )
    assert report.ndcg(doubled, np.array([4.0, 3.0, 2.0, 1.0])) == pytest.approx(1 / np.log2(3))


def test_the_blend_weighs_every_stage_the_same() -> None:
    pool = _pool("s", "q", "a", [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(report.blend(pool), np.zeros(4), atol=1e-12)
    own = np.array([-1000.0, 0.0, 0.0, 1000.0])
    np.testing.assert_allclose(report.blend(pool, own), np.array([-1, 0, 0, 1]) / 8**0.5)


def test_methods_are_compared_query_by_query() -> None:
    found = [_pool("one", f"q{i}", "d", [0, 0, 0, 1]) for i in range(6)]
    found += [_pool("two", f"q{i}", "a", [0, 0, 0, 1]) for i in range(3)]
    perfect = [np.array([0.0, 0, 0, 1])] * 6 + [np.array([1.0, 0, 0, 0])] * 3
    methods = {item.name: item for item in report.methods(found, {"x": perfect})}
    assert methods["x"].mean == 1.0
    assert methods[report.FUSED].by_set["two"].tolist() == [1.0] * 3
    gap = report.difference(methods["x"], methods[report.FUSED])
    assert gap.low == gap.mean == gap.high == pytest.approx((1 - 1 / np.log2(5)) / 2)
    only = report.difference(methods["x"], methods[report.FUSED], "two")
    assert only.mean == 0.0
    table = report.markdown(list(methods.values()), methods[report.PRODUCT])
    assert "| one (6) | two (3) |" in table
    assert "| x | 1.000 | 1.000 | 1.0000 |" in table


def test_pools_of_the_engine_are_scored_as_the_engine_scores(
    repository: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "judged"
    builder.write_judged_set("example/pages", repository, 5, 4, folder)
    judged = read_set(folder)
    settings = Settings(cache=tmp_path / "cache", jobs=1, warm=0)
    run = run_set(judged, settings)
    found = list(pools.pools_of(judged, run.traces, settings))
    assert [pool.query_id for pool in found] == [trace.query_id for trace in run.traces]
    file = MODELS / "compact-reranker.int8.onnx"
    scorer = report.Scorer(file, Tokenizer.from_file(str(TOKENIZER)))
    for pool in found[:2]:
        scores = scorer.score(pool.query, pool.texts)
        np.testing.assert_allclose(scores, pool.scores["reranker_logit"], atol=1e-3)
    engine = result_of(run).variants["b4_reranked"].ndcg_at_10
    blended = [
        report.ndcg(pool, report.blend(pool, pool.scores["reranker_logit"])) for pool in found
    ]
    assert np.mean(blended) == pytest.approx(engine)


def test_pools_are_thinned_evenly() -> None:
    found = [_pool("s", str(i), "a", [0, 0, 0, 0]) for i in range(10)]
    assert [pool.query_id for pool in pools.spread(found, 3)] == ["0", "3", "6"]
    assert pools.spread(found, 20) == found
