"""One trace a query, four variants from it, and the files that a run leaves."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import ir_measures
import numpy as np
import pytest

from clumsies.engine.trace import StageTimes
from clumsies.errors import InvalidRequest, NotFound
from clumsies.types import Resource, ResourceId
from evaluation.datasets import EvaluationSet, read_set
from evaluation.harness import (
    OpenEngine,
    SetRun,
    Settings,
    index_directory,
    latency,
    percentile,
    run_set,
    runs_of,
    write_run_files,
)
from evaluation.metrics import Composition, Scores
from evaluation.results import SetResult, read_results, result_of
from evaluation.traces import VARIANTS, KeptTrace, read_traces, write_traces
from tests.evaluation.conftest import TinyAnswer, TinyEngine, WriteSet


@pytest.fixture
def small(write_set: WriteSet) -> EvaluationSet:
    return read_set(write_set())


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache=tmp_path / "cache", jobs=3)


@pytest.fixture
def finished(small: EvaluationSet, settings: Settings, open_tiny: OpenEngine) -> SetRun:
    return run_set(small, settings, opener=open_tiny)


def test_traces_stand_in_the_order_of_the_set(finished: SetRun) -> None:
    assert [trace.query_id for trace in finished.traces] == ["q1", "q2", "q3"]
    assert (finished.documents, finished.units) == (4, 6)
    assert finished.traces[0].judgments == {"deploy#1": 2, "rollback": 1}


def test_a_document_takes_the_rank_of_its_best_unit(finished: SetRun) -> None:
    trace = finished.traces[0]
    units = [trace.documents[at] for at in trace.unit_order("b4_reranked")]
    assert len(units) == 6
    assert trace.document_order("b4_reranked") == list(dict.fromkeys(units))
    assert set(trace.document_order("b4_reranked")) == {"deploy#1", "rollback", "style", "retry"}


def test_a_variant_holds_only_what_its_stage_ranked(finished: SetRun) -> None:
    trace = finished.traces[1]
    assert trace.document_order("b1_bm25") == ["retry"]
    assert len(trace.document_order("b2_dense_vector")) == 4


def test_an_exact_rank_goes_before_the_bm25_rank_and_ties_go_by_key(finished: SetRun) -> None:
    trace = finished.traces[1]
    bm25 = trace.columns["bm25_rank"]
    (matched,) = [at for at in range(len(bm25)) if bm25[at] == 1]
    other = (matched + 1) % len(bm25)
    trace.columns["exact_rank"][other] = 1
    order = trace.unit_order("b1_bm25")
    assert order == sorted([matched, other], key=trace.unit_keys.__getitem__)


def test_each_scope_has_its_own_index(
    write_set: WriteSet, settings: Settings, open_tiny: OpenEngine
) -> None:
    folder = write_set(
        documents=[
            {"id": "a", "text": "the red door", "scope": "one"},
            {"id": "b", "text": "the red door", "scope": "two"},
            {"id": "c", "text": "the blue door", "scope": "two"},
        ],
        queries=[
            {"id": "q2", "text": "red door", "scope": "two"},
            {"id": "q1", "text": "red door", "scope": "one"},
            {"id": "q3", "text": "blue door", "scope": "two"},
        ],
        judgments=[("q1", "a", 1), ("q2", "b", 1), ("q3", "c", 1)],
    )
    run = run_set(read_set(folder), settings, opener=open_tiny)
    assert [trace.query_id for trace in run.traces] == ["q2", "q1", "q3"]
    assert [sorted(set(trace.documents)) for trace in run.traces] == [["b", "c"], ["a"], ["b", "c"]]
    assert run.units == 3


def test_queries_are_asked_side_by_side(small: EvaluationSet, settings: Settings) -> None:
    together = threading.Barrier(3, timeout=30)

    class Waiting(TinyEngine):
        def activate(self, query: str) -> TinyAnswer:
            if threading.current_thread() is not threading.main_thread():
                together.wait()
            return super().activate(query)

    @contextmanager
    def opener(directory: Path, profile: str) -> Iterator[TinyEngine]:
        yield Waiting(profile)

    assert len(run_set(small, settings, opener=opener).traces) == 3


def test_another_text_or_path_style_or_profile_has_another_index(
    small: EvaluationSet, write_set: WriteSet, settings: Settings
) -> None:
    changed = read_set(write_set("other", documents=[{"id": "retry", "text": "x"}], judgments=()))
    places = {
        index_directory(small, None, settings),
        index_directory(changed, None, settings),
        index_directory(small, None, Settings(cache=settings.cache, paths="id")),
        index_directory(small, None, Settings(cache=settings.cache, profile="multilingual")),
    }
    assert len(places) == 4
    assert index_directory(small.asked_with(changed), None, settings) in places


def test_progress_counts_to_the_end(
    small: EvaluationSet, settings: Settings, open_tiny: OpenEngine
) -> None:
    steps: list[tuple[str, int, int]] = []
    run_set(small, settings, opener=open_tiny, on_step=lambda *step: steps.append(step))
    assert ("asking", 3, 3) in steps
    assert ("timing", 3, 3) in steps


def test_latency_follows_each_variants_stages(finished: SetRun) -> None:
    times = latency(finished.warm)
    assert times["b1_bm25"]["p50_ms"] == pytest.approx(0.201)
    assert times["b2_dense_vector"]["p50_ms"] == pytest.approx(3.041)
    assert times["b3_hybrid_rrf"]["p95_ms"] == pytest.approx(3.246)
    assert times["b4_reranked"]["p95_ms"] == pytest.approx(11.0)
    assert latency([]) == {}
    assert latency([StageTimes()])["b4_reranked"] == {"p50_ms": 0.0, "p95_ms": 0.0}


def test_timed_queries_are_asked_again_one_at_a_time_after_all(
    small: EvaluationSet, settings: Settings
) -> None:
    asked: list[tuple[str, bool]] = []

    class Listening(TinyEngine):
        def activate(self, query: str) -> TinyAnswer:
            timed = threading.current_thread() is threading.main_thread()
            asked.append((query, timed))
            return super().activate(query)

    @contextmanager
    def opener(directory: Path, profile: str) -> Iterator[TinyEngine]:
        yield Listening(profile)

    texts = [query.text for query in small.queries]
    run = run_set(small, replace(settings, warm=2), opener=opener)
    assert sorted(query for query, _ in asked[:3]) == sorted(texts)
    # One activation more to warm what belongs to the thread, then those that are timed.
    assert asked[3:] == [(text, True) for text in (texts[0], *texts[:2])]
    assert len(run.warm) == 2


def test_candidates_from_elsewhere_or_out_of_date_are_counted(
    small: EvaluationSet, settings: Settings
) -> None:
    class Leaking(TinyEngine):
        """Holds a document of another corpus, and an old text of one of this."""

        def index(self, resources: Iterable[Resource], **_: object) -> int:
            kept = list(resources)
            kept[3] = replace(kept[3], content="A failed upload is a failed upload.")
            stranger = replace(kept[0], resource_id=ResourceId("other"), content="failed tag")
            return super().index([*kept, stranger])

    @contextmanager
    def opener(directory: Path, profile: str) -> Iterator[TinyEngine]:
        yield Leaking(profile)

    run = run_set(small, settings, opener=opener)
    (mix,) = [run.traces[1].composition("b1_bm25")]
    assert mix == Composition(resource_diversity=1.0, scope_violation=0.5, stale_result=0.5)
    assert "other" in run.traces[1].documents
    result = result_of(run)
    assert result.composition["b2_dense_vector"].scope_violation == pytest.approx(1 / 7)
    assert result.composition["b2_dense_vector"].stale_result == pytest.approx(1 / 7)


def test_a_sound_run_has_no_faults_and_counts_documents_once(finished: SetRun) -> None:
    composition = result_of(finished).composition
    assert list(composition) == list(VARIANTS)
    assert composition["b2_dense_vector"].resource_diversity == pytest.approx(4 / 6)
    assert {(mix.scope_violation, mix.stale_result) for mix in composition.values()} == {(0.0, 0.0)}
    finished.traces[2].columns["bm25_rank"][:] = np.nan
    assert finished.traces[2].composition("b1_bm25") is None


def test_traces_of_older_versions_say_nothing_of_faults(finished: SetRun, tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    write_traces(file, finished.traces)
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for record in records:
        del record["columns"]["outside_corpus"], record["columns"]["stale"]
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    (run,) = runs_of(read_traces(file))
    assert result_of(run).composition == {}
    assert result_of(run).details == result_of(finished).details


def test_percentiles_take_the_value_at_the_rounded_up_index() -> None:
    values = [40.0, 10.0, 20.0, 30.0]
    assert percentile(values, 0.5) == 30.0
    assert percentile(values, 0.95) == 40.0
    assert percentile(values, 0.0) == 10.0
    assert percentile([7.0], 0.95) == 7.0


def test_results_are_means_over_the_answerable_queries(finished: SetRun) -> None:
    result = result_of(finished)
    record = result.as_dict()
    assert result.queries == 2
    assert list(result.variants) == list(VARIANTS)
    assert result.variants["b1_bm25"].recall_at_20 == 1.0
    assert result.answered == 1.0
    assert (result.no_answer.queries, result.no_answer.rightly_empty) == (1, 0.0)
    assert result.skipped == {"late_interaction:script": 1}
    assert record["set"] == "small"
    assert set(record) >= {"queries", "profile", "variants", "latency", "skipped"}
    assert "details" not in record


def test_results_survive_their_json(finished: SetRun, tmp_path: Path) -> None:
    result = replace(result_of(finished, "linear"), outsiders={"grep": Scores(0.5, 0.25, 0.125)})
    file = tmp_path / "result.json"
    file.write_text(json.dumps(result.as_dict(details=True)), encoding="utf-8")
    assert read_results(file) == [result]
    file.write_text(json.dumps([result.as_dict()]), encoding="utf-8")
    (plain,) = read_results(file)
    assert isinstance(plain, SetResult)
    assert plain.details == {}
    assert plain.variants == result.variants


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"set": "x"}'])
def test_a_file_that_is_no_result_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidRequest, match=r"result\.json is not a result"):
        read_results(file)
    with pytest.raises(NotFound):
        read_results(tmp_path / "gone.json")


def test_run_files_give_the_same_numbers_to_other_tools(
    finished: SetRun, small: EvaluationSet, tmp_path: Path
) -> None:
    written = write_run_files(tmp_path / "small.trec", finished)
    assert [file.name for file in written] == [f"small.{name}.trec" for name in VARIANTS]
    qrels = [
        ir_measures.Qrel(query, document, grade)
        for query in ("q1", "q2")
        for document, grade in small.judgments[query].items()
    ]
    ndcg = ir_measures.nDCG(gains={1: 1, 2: 3}) @ 10
    measures = [ir_measures.R @ 20, ndcg, ir_measures.RR @ 10]
    result = result_of(finished)
    for file, variant in zip(written, VARIANTS, strict=True):
        run = [line for line in ir_measures.read_trec_run(str(file)) if line.query_id != "q3"]
        found = ir_measures.calc_aggregate(measures, qrels, run)
        expected = result.variants[variant].as_dict()
        assert [found[measure] for measure in measures] == pytest.approx(list(expected.values()))


def test_blanks_in_ids_cannot_break_a_run_file(
    write_set: WriteSet, settings: Settings, open_tiny: OpenEngine, tmp_path: Path
) -> None:
    folder = write_set(
        documents=[{"id": "two words", "text": "red door"}],
        queries=[{"id": "q\t1", "text": "door"}],
        judgments=(),
    )
    run = run_set(read_set(folder), settings, opener=open_tiny)
    files = write_run_files(tmp_path / "run.txt", run)
    line = files[0].read_text(encoding="utf-8").strip()
    assert line == "q%091 Q0 two%20words 1 1.00000000 compact-b1_bm25"


@pytest.mark.parametrize("name", ["traces.jsonl", "traces.jsonl.gz"])
def test_kept_traces_come_back_the_same(finished: SetRun, tmp_path: Path, name: str) -> None:
    file = tmp_path / "kept" / name
    write_traces(file, finished.traces)
    back = tuple(read_traces(file))
    assert [_comparable(trace) for trace in back] == [_comparable(t) for t in finished.traces]
    (again,) = runs_of(back)
    assert (again.set_name, again.profile, again.documents) == ("small", "compact", None)
    assert result_of(again).details == result_of(finished).details


def test_a_broken_trace_file_names_the_line(finished: SetRun, tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl.gz"
    write_traces(file, finished.traces)
    lines = gzip.decompress(file.read_bytes()).splitlines()
    record = json.loads(lines[1])
    record["columns"]["bm25_rank"].pop()
    plain = tmp_path / "traces.jsonl"
    plain.write_bytes(lines[0] + b"\n" + json.dumps(record).encode() + b"\n")
    with pytest.raises(InvalidRequest, match=r"traces\.jsonl:2: .*unequal"):
        list(read_traces(plain))
    with pytest.raises(NotFound, match="keep-traces"):
        list(read_traces(tmp_path / "gone.jsonl"))


def test_a_score_is_missing_as_the_engine_takes_it(finished: SetRun) -> None:
    trace = finished.traces[0]
    bm25, vector = trace.columns["bm25_score"], trace.columns["vector_score"]
    vector[2] = np.nan
    assert np.isnan(bm25).any()
    assert np.array_equal(trace.filled("bm25_score"), np.where(np.isnan(bm25), 0.0, bm25))
    assert trace.filled("vector_score")[2] == np.nanmin(vector)
    vector[:] = np.nan
    assert np.isnan(trace.filled("vector_score")).all()


def _comparable(trace: KeptTrace) -> tuple[object, ...]:
    columns = {name: column.tolist() for name, column in trace.columns.items()}
    text = json.dumps(columns).replace("NaN", "null")
    return (trace.query_id, trace.judgments, trace.skipped, trace.times, trace.unit_keys, text)
