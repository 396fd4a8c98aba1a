"""Fixtures of judged cases in the harness of sets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from clumsies.engine.pipeline import Engine
from clumsies.history.cases import Grade
from clumsies.history.corpora import CorpusEntry
from clumsies.history.fixtures import Fixture
from clumsies.history.runs import Finished
from clumsies.types import Resource, ResourceId
from evaluation.fixtures import document_grades, replayed_run, stored_run
from evaluation.harness import Settings
from evaluation.results import result_of
from evaluation.traces import VARIANTS, read_traces, write_traces
from tests.engine.fake_models import ArithmeticModels
from tests.history.samples import TEXTS, History


@dataclass(frozen=True)
class ResourceCorpus:
    """Resources as a searched memory."""

    effective_hash: str
    resources: list[Resource]

    @property
    def entries(self) -> list[CorpusEntry]:
        return [
            CorpusEntry(r.resource_id, r.scope, r.kind, r.path, r.content_hash)
            for r in self.resources
        ]

    def read(self, resource_id: str) -> tuple[str, str]:
        return resource_id, TEXTS[resource_id]


@pytest.fixture
def fixture(history: History) -> Fixture:
    case_id = history.case()
    grades = [Grade("mem_a", 1, "unit_mem_a"), Grade("mem_a", 2, missed=True)]
    history.cases.replace_judgments(case_id, 1, [*grades, Grade("mem_b", 3, missed=True)])
    return history.fixtures.export(None, [])


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    made = History(tmp_path / "data")
    yield made
    made.database.close()


def test_stored_traces_score_as_the_recorded_ranks_say(fixture: Fixture) -> None:
    result = result_of(stored_run("set", fixture))
    assert (result.queries, result.documents, result.profile) == (1, 3, "compact")
    ideal = 7 + 3 / math.log2(3)
    expected = {
        "b1_bm25": 3 / ideal,  # A alone
        "b2_dense_vector": 1.0,  # B before A
        "b3_hybrid_rrf": (3 + 7 / math.log2(3)) / ideal,
        "b4_reranked": (3 + 7 / math.log2(3)) / ideal,
    }
    for variant in VARIANTS:
        assert result.variants[variant].ndcg_at_10 == pytest.approx(expected[variant])
    assert result.variants["b1_bm25"].recall_at_20 == 0.5
    assert result.latency_queries == 0


def test_a_resource_has_the_best_grade_of_what_was_judged_of_it(fixture: Fixture) -> None:
    assert document_grades(fixture.cases[0].judgments) == {"mem_a": 2, "mem_b": 3}


def test_stored_traces_can_be_kept_and_scored_again(fixture: Fixture, tmp_path: Path) -> None:
    run = stored_run("set", fixture)
    write_traces(tmp_path / "traces.jsonl", run.traces)
    [again] = read_traces(tmp_path / "traces.jsonl")
    assert again.document_order("b4_reranked") == ["mem_a", "mem_b", "mem_c"]
    assert again.judgments == run.traces[0].judgments


def test_a_fixture_of_an_engine_is_reproduced_by_an_engine(
    history: History, tmp_path: Path
) -> None:
    """The same models and memory on another directory: the same candidates, ranks and scores."""
    models = ArithmeticModels()
    query = "roll back with shipctl"

    resources = [Resource(ResourceId(k), f"{k}.md", t) for k, t in sorted(TEXTS.items())]
    with Engine.open(tmp_path / "index", models=models) as engine:
        engine.index(resources)
        trace = engine.activate(query).trace
    corpus = ResourceCorpus(trace.effective_hash, resources)
    run_id = history.begin(query=query)
    history.runs.finish(run_id, Finished(trace, corpus))
    case_id = history.case(run_id)
    unit = trace.candidates[0]
    history.cases.replace_judgments(case_id, 1, [Grade(unit.resource_id, 3, unit.unit_key)])
    fixture = history.fixtures.export(None, [case_id])
    run = replayed_run(
        "set",
        fixture,
        Settings(profile="arithmetic", cache=tmp_path / "cache"),
        lambda directory, _: Engine.open(directory, models=models),
    )
    stored = stored_run("set", fixture)
    assert run.traces[0].unit_keys == stored.traces[0].unit_keys
    for name, column in stored.traces[0].columns.items():
        assert run.traces[0].columns[name] == pytest.approx(column, nan_ok=True), name
    assert result_of(run).variants == result_of(stored).variants
    assert len(run.warm) == 1
    models.close()
