"""What one machine exports another reproduces, and nothing edited or half-written is believed."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clumsies.errors import Conflict, InvalidRequest, NotFound, StoreFailed
from clumsies.history.cases import Grade, Labels
from clumsies.history.fixtures import (
    Fixture,
    decode_fixture,
    encode_fixture,
    read_fixture,
    write_fixture,
)
from clumsies.types import content_hash
from tests.history.samples import PROJECT, TEXTS, History, TextCorpus

GRADES = [Grade("mem_a", 1, "unit_mem_a", notes="Close."), Grade("mem_c", 3, missed=True)]


def exported(history: History) -> Fixture:
    case_id = history.case()
    history.cases.replace_judgments(case_id, 1, GRADES, Labels("howto", "Notes."))
    return history.fixtures.export(PROJECT, [])


def test_a_fixture_has_the_case_the_memory_the_trace_and_the_numbers(history: History) -> None:
    fixture = exported(history)
    body = json.loads(encode_fixture(fixture))
    assert body["version"] == 1
    assert set(body) == {"version", "exported_at", "cases", "report"}
    [case] = body["cases"]
    assert set(case) == {
        "evaluation_case",
        "resources",
        "judgments",
        "source_run",
        "candidates",
    }
    assert {r["metadata"]["resource_id"]: r["content"] for r in case["resources"]} == TEXTS
    assert body["report"]["mean"]["b4_reranked"]["recall_at_20"] == 1.0
    assert body["report"]["mean"]["b2_dense_vector"]["recall_at_20"] == 0.5
    assert decode_fixture(encode_fixture(fixture)) == fixture


def test_another_home_has_the_same_case_and_report(history: History, tmp_path: Path) -> None:
    file = tmp_path / "set.json"
    fixture = exported(history)
    write_fixture(file, fixture)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    other = History(tmp_path / "other")
    case_id = fixture.cases[0].evaluation_case.case_id
    assert other.fixtures.import_(read_fixture(file)).imported == (case_id,)
    assert other.cases.get(case_id) == history.cases.get(case_id)
    again = other.fixtures.export(None, [case_id])
    assert again.report == fixture.report
    assert again.cases == fixture.cases
    assert other.runs.get(fixture.cases[0].source_run.run_id).pinned
    assert other.database.problems() == []
    other.database.close()


def test_importing_twice_changes_nothing(history: History, tmp_path: Path) -> None:
    fixture = exported(history)
    assert history.fixtures.import_(fixture).imported == ()
    other = History(tmp_path / "other")
    other.fixtures.import_(fixture)
    before = other.rows("SELECT * FROM retrieval_runs")
    assert len(other.fixtures.import_(fixture).unchanged) == 1
    assert other.rows("SELECT * FROM retrieval_runs") == before
    other.database.close()


def test_a_case_can_move_to_another_project(history: History, tmp_path: Path) -> None:
    other = History(tmp_path / "other")
    other.fixtures.import_(exported(history), "proj_here")
    [case] = other.cases.page("proj_here").cases
    assert other.runs.get(case.source_run_id).run.project_id == "proj_here"
    assert other.cases.page(PROJECT).cases == ()
    other.database.close()


def test_a_case_that_differs_here_is_a_conflict_and_nothing_is_written(
    history: History, tmp_path: Path
) -> None:
    first = exported(history)
    case_id = first.cases[0].evaluation_case.case_id
    history.case(history.record())
    later = history.fixtures.export(PROJECT, [])
    other = History(tmp_path / "other")
    other.fixtures.import_(first)
    kept = other.cases.replace_judgments(case_id, 2, [])
    with pytest.raises(Conflict) as caught:
        other.fixtures.import_(later)
    assert caught.value.code == "evaluation_judgment_conflict"
    assert other.cases.get(case_id) == kept
    assert len(other.cases.page(None).cases) == 1
    other.database.close()


def test_a_run_that_is_still_here_is_used_again(history: History) -> None:
    fixture = exported(history)
    with history.database.writer() as connection:
        connection.execute("DELETE FROM evaluation_judgments")
        connection.execute("DELETE FROM evaluation_cases")
    assert len(history.fixtures.import_(fixture).imported) == 1
    assert history.fixtures.export(None, []).cases == fixture.cases


def test_unknown_cases_and_an_empty_set_are_refused(history: History) -> None:
    with pytest.raises(InvalidRequest):
        history.fixtures.export(PROJECT, [])
    case_id = history.case()
    with pytest.raises(InvalidRequest) as caught:
        history.fixtures.export(None, [case_id, "case_unknown"])
    assert caught.value.details == {"unknown": ["case_unknown"]}


def test_only_the_named_cases_are_exported(history: History) -> None:
    made = [history.case(history.record()) for _ in range(3)]
    fixture = history.fixtures.export(None, [made[2], made[0]])
    assert [case.evaluation_case.case_id for case in fixture.cases] == [made[2], made[0]]


def test_a_damaged_body_is_not_exported(history: History) -> None:
    exported(history)
    history.runs.blobs.path(content_hash(TEXTS["mem_b"])).unlink()
    with pytest.raises(StoreFailed):
        history.fixtures.export(None, [])


def _first(body: dict[str, Any]) -> dict[str, Any]:
    case: dict[str, Any] = body["cases"][0]
    return case


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "version": lambda body: body.update(version=2),
    "no version": lambda body: body.pop("version"),
    "unknown field": lambda body: body.update(more=1),
    "body": lambda body: _first(body)["resources"][0].update(content="edited"),
    "path": lambda body: _first(body)["resources"][0]["metadata"].update(path="edited.md"),
    "resource gone": lambda body: _first(body)["resources"].pop(),
    "other memory": lambda body: _first(body)["source_run"].update(effective_hash="sha256:x"),
    "other run": lambda body: _first(body)["source_run"].update(run_id="run_x"),
    "failed run": lambda body: _first(body)["source_run"].update(status="failed"),
    "grade": lambda body: _first(body)["judgments"][0].update(relevance=4),
    "foreign unit": lambda body: _first(body)["judgments"][0].update(unit_key="unit_mem_b"),
    "judged twice": lambda body: _first(body)["judgments"].append(_first(body)["judgments"][0]),
    "other case": lambda body: _first(body)["judgments"][0].update(case_id="case_x"),
    "candidate twice": lambda body: _first(body)["candidates"].append(
        _first(body)["candidates"][0]
    ),
    "judgment version": lambda body: _first(body)["evaluation_case"].update(judgment_version=0),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_fixture_is_refused(
    history: History, edit: Callable[[dict[str, Any]], object]
) -> None:
    body = json.loads(encode_fixture(exported(history)))
    edit(body)
    with pytest.raises(InvalidRequest):
        decode_fixture(json.dumps(body).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_fixture_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode_fixture(data)


def test_missing_files_and_directories_are_named(history: History, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_fixture(tmp_path / "none.json")
    with pytest.raises(NotFound):
        write_fixture(tmp_path / "none" / "set.json", exported(history))


def test_texts_of_any_kind_come_back(history: History, tmp_path: Path) -> None:
    texts = {"mem_a": "重跑gen-itgc后50条\r\n\0 “quoted” \u2028 🙂", "mem_b": ""}
    history.case(history.record(TextCorpus(texts), found=[]))
    fixture = decode_fixture(encode_fixture(history.fixtures.export(None, [])))
    other = History(tmp_path / "other")
    other.fixtures.import_(fixture)
    again = other.fixtures.export(None, [])
    assert {r.metadata.resource_id: r.content for r in again.cases[0].resources} == texts
    assert msgspec.json.encode(again.cases) == msgspec.json.encode(fixture.cases)
    other.database.close()
