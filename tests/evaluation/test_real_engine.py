"""The harness on the real engine: what is kept between runs, and what a trace must hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clumsies.engine.build import BuildReport
from clumsies.engine.pipeline import Engine
from clumsies.models.manifest import COMPACT
from evaluation.datasets import read_set, resources_of
from evaluation.harness import Settings, index_directory, run_set
from evaluation.rerank_sweep import order_of
from evaluation.results import result_of
from tests.evaluation.conftest import WriteSet

LONG = "\n\n".join(f"Paragraph {n} says that valve {n} opens at {n} degrees." for n in range(200))


@pytest.fixture
def folder(write_set: WriteSet) -> Path:
    return write_set(
        documents=[
            {"id": "valves", "title": "Valves", "text": LONG},
            {"id": "tag", "text": "Push the tag to start a release."},
            {"id": "乙", "text": "黑豹队的防守只丢了三百零八分。"},
        ],
        queries=[
            {"id": "q1", "text": "what degrees does valve 150 open at"},
            {"id": "q2", "text": "防守丢了几分"},
        ],
        judgments=[("q1", "valves", 1), ("q2", "乙", 1)],
    )


def test_a_second_run_embeds_nothing_and_answers_the_same(folder: Path, tmp_path: Path) -> None:
    small, settings = read_set(folder), Settings(cache=tmp_path / "cache", warm=0)
    first = run_set(small, settings)
    directory = index_directory(small, None, settings)
    resources = [resource for resource, _ in resources_of(small.documents).values()]
    with Engine.open(directory, profile="compact") as engine:
        report = engine.index(resources)
    assert isinstance(report, BuildReport)
    assert (report.resources_changed, report.passages_embedded) == (0, 0)
    steps: list[str] = []
    second = run_set(small, settings, on_step=lambda doing, done, total: steps.append(doing))
    assert "embedding" not in steps
    assert result_of(second).details == result_of(first).details


def test_a_smaller_limit_is_what_the_sweep_says_of_a_larger_one(
    folder: Path, tmp_path: Path
) -> None:
    small = read_set(folder)
    more, fewer = (
        run_set(small, Settings(cache=tmp_path / "cache", warm=0, rerank_limit=limit)).traces[0]
        for limit in (24, 3)
    )
    assert int(np.sum(~np.isnan(more.columns["reranker_logit"]))) > 3
    assert int(np.sum(~np.isnan(fewer.columns["reranker_logit"]))) == 3
    expected = [more.unit_keys[at] for at in order_of(more, COMPACT, 3)[:3]]
    assert [fewer.unit_keys[at] for at in fewer.unit_order("b4_reranked")[:3]] == expected


def test_documents_take_their_best_units_rank_and_scripts_are_counted(
    folder: Path, tmp_path: Path
) -> None:
    run = run_set(read_set(folder), Settings(cache=tmp_path / "cache", warm=1))
    english, chinese = run.traces
    assert (run.units or 0) > (run.documents or 0)
    assert len(english.documents) > len(set(english.documents))
    assert english.document_order("b4_reranked")[0] == "valves"
    assert english.skipped == ()
    assert chinese.document_order("b1_bm25") == ["乙"]
    assert chinese.document_order("b2_dense_vector") == []
    assert result_of(run).skipped["vector:script"] == 1
    assert len(run.warm) == 1


def test_coverage_stands_where_the_engine_gave_a_relevance(folder: Path, tmp_path: Path) -> None:
    run = run_set(read_set(folder), Settings(cache=tmp_path / "cache", warm=0))
    for trace in run.traces:
        coverage, relevance = trace.columns["coverage"], trace.columns["relevance"]
        assert np.array_equal(np.isnan(coverage), np.isnan(relevance))
        assert np.nanmax(coverage) > 0.2
        assert np.nanmin(coverage) >= 0.0
        assert np.nanmax(coverage) <= 1.0 + 1e-9
