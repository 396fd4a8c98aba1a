"""Retrieval history of a real daemon: runs beside answers, cases, fixtures, restarts."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from clumsies.errors import ClumsiesError, Conflict, InvalidRequest, NotFound
from clumsies.history.runs import BLOB_FOLDER
from tests.daemon.resident import Project, Resident
from tests.daemon.running import wait_for

FILES = {
    "deploy.md": "# Deploy\n\n## Undo\n\nRoll back a release with shipctl undo.\n",
    "lunch.md": "# Lunch\n\nSoup is served on Mondays.\n",
    "release.md": "# Release\n\nTag the commit before a release goes out.\n",
}
QUERY = "how do we roll back a zanzibar release"


@pytest.fixture(scope="module")
def resident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resident]:
    running = Resident(tmp_path_factory.mktemp("d"))
    yield running
    assert running.end() == 0
    assert running.process.stderr is not None
    assert "zanzibar" not in running.logs()


@pytest.fixture
def project(resident: Resident, tmp_path: Path) -> Project:
    return resident.project(tmp_path / "work", FILES)


def of_run(project: Project, run_id: str) -> dict[str, Any]:
    detail: dict[str, Any] = project.client.call("get_retrieval_run", {"run_id": run_id})
    return detail


def case_of(project: Project, run_id: str, **more: Any) -> dict[str, Any]:
    case: dict[str, Any] = project.client.call("create_evaluation_case", {"run_id": run_id, **more})
    return case


def test_the_answer_and_the_run_say_the_same(project: Project) -> None:
    answer = project.activate(QUERY)
    detail = of_run(project, answer["run_id"])
    run = detail["run"]
    assert (run["status"], run["query"]) == ("succeeded", QUERY)
    assert (run["index_revision"], run["profile"]) == (answer["index_revision"], "compact")
    returned = [
        (c["unit_key"], c["content_hash"], c["delta_action"])
        for c in detail["candidates"]
        if c["selected"]
    ]
    assert returned == [
        (f["unit_key"], f["content_hash"], f["action"]) for f in answer["fragments"]
    ]
    assert run["returned_fragment_count"] == len(returned)
    assert {r["path"] for r in detail["resources"]} == set(FILES)
    assert all("content_preview" not in r for r in detail["resources"])
    assert run["total_us"] >= run["rerank_us"] > 0
    again = project.activate(QUERY, state=answer["next_state"])
    kept = [c for c in of_run(project, again["run_id"])["candidates"] if c["selected"]]
    assert {c["delta_action"] for c in kept} == {"reuse"}


def test_a_draft_is_part_of_the_kept_memory(project: Project) -> None:
    project.create("drafted.md", "# Drafted\n\nThe zanzibar release is rolled back by Amina.\n")
    detail = of_run(project, project.activate(QUERY)["run_id"])
    [drafted] = [r for r in detail["resources"] if r["path"] == "drafted.md"]
    assert drafted["draft_id"].startswith("draft_")
    assert drafted["draft_revision"].startswith("sha256:")


def test_runs_are_listed_by_page_and_cleared(project: Project) -> None:
    made = [project.activate(f"{QUERY} {number}")["run_id"] for number in range(3)]
    first = project.call("list_retrieval_runs", limit=2)
    rest = project.call("list_retrieval_runs", limit=2, cursor=first["next_cursor"])
    listed = [run["run_id"] for page in (first, rest) for run in page["runs"]]
    assert listed == list(reversed(made))
    case_of(project, made[0])
    assert of_run(project, made[0])["pinned"]
    assert project.call("clear_retrieval_runs") == {"removed": 2, "pinned": 1}
    [left] = project.call("list_retrieval_runs")["runs"]
    assert left["run_id"] == made[0]


@pytest.mark.parametrize("limit", [0, 101])
def test_a_page_has_1_to_100_runs(project: Project, limit: int) -> None:
    with pytest.raises(InvalidRequest):
        project.call("list_retrieval_runs", limit=limit)


@pytest.mark.parametrize("query", ["", "  \n", "x" * 32_769])
def test_what_is_no_query_makes_no_run(project: Project, query: str) -> None:
    with pytest.raises(InvalidRequest):
        project.activate(query)
    assert project.call("list_retrieval_runs")["runs"] == []


def test_an_unknown_project_makes_no_run(project: Project) -> None:
    with pytest.raises(ClumsiesError):
        project.client.call("activate_memory", {"project_id": "proj_x", "query": QUERY})
    with pytest.raises(ClumsiesError):
        project.client.call("list_retrieval_runs", {"project_id": "proj_x"})


def test_a_bad_state_is_a_failed_run_of_that_stage(project: Project) -> None:
    with pytest.raises(InvalidRequest):
        project.activate(QUERY, state="zanzibar")
    [run] = project.call("list_retrieval_runs")["runs"]
    assert (run["status"], run["error_stage"]) == ("failed", "activation_state")
    assert run["error_code"] == "invalid_activation_state"
    with pytest.raises(InvalidRequest):
        case_of(project, run["run_id"])


def test_a_case_is_judged_by_who_saw_its_latest_version(project: Project) -> None:
    run_id = project.activate(QUERY)["run_id"]
    case = case_of(project, run_id, query_category="howto")
    own = case["evaluation_case"]
    assert case_of(project, run_id)["evaluation_case"] == own
    best = case["candidates"][0]
    missed = next(r for r in case["resources"] if r["path"] == "release.md")
    payload = {
        "case_id": own["case_id"],
        "expected_judgment_version": 1,
        "judgments": [
            {
                "resource_id": best["resource_id"],
                "unit_key": best["unit_key"],
                "relevance": 3,
                "missed": False,
            },
            {"resource_id": missed["resource_id"], "relevance": 1, "missed": True, "notes": "n"},
        ],
    }
    judged = project.client.call("replace_evaluation_judgments", payload)
    assert judged["evaluation_case"]["judgment_version"] == 2
    assert judged["evaluation_case"]["query_category"] == "howto"
    assert {j["evidence_excerpt"] for j in judged["judgments"]} == {
        best["evidence_excerpt"],
        FILES["release.md"],
    }
    assert judged["report"]["mean"]["b4_reranked"]["mrr"] == 1.0
    with pytest.raises(Conflict) as caught:
        project.client.call("replace_evaluation_judgments", payload)
    assert caught.value.code == "evaluation_judgment_conflict"
    assert project.client.call("get_evaluation_case", {"case_id": own["case_id"]}) == judged
    [listed] = project.call("list_evaluation_cases")["cases"]
    assert listed == judged["evaluation_case"]
    removal = {"case_id": own["case_id"], "expected_judgment_version": 1}
    with pytest.raises(Conflict):
        project.client.call("remove_evaluation_case", removal)
    removal["expected_judgment_version"] = 2
    assert project.client.call("remove_evaluation_case", removal) == listed
    assert project.call("list_evaluation_cases")["cases"] == []


@pytest.mark.parametrize("relevance", [-1, 4])
def test_a_grade_is_0_to_3(project: Project, relevance: int) -> None:
    case = case_of(project, project.activate(QUERY)["run_id"])
    judgment = {
        "resource_id": case["resources"][0]["resource_id"],
        "relevance": relevance,
        "missed": True,
    }
    with pytest.raises(InvalidRequest):
        project.client.call(
            "replace_evaluation_judgments",
            {
                "case_id": case["evaluation_case"]["case_id"],
                "expected_judgment_version": 1,
                "judgments": [judgment],
            },
        )


def test_a_fixture_gives_the_same_report_on_another_machine(
    project: Project, tmp_path: Path
) -> None:
    case = case_of(project, project.activate(QUERY)["run_id"])
    best = case["candidates"][0]
    case_id = case["evaluation_case"]["case_id"]
    grade = {"resource_id": best["resource_id"], "unit_key": best["unit_key"], "relevance": 2}
    project.client.call(
        "replace_evaluation_judgments",
        {
            "case_id": case_id,
            "expected_judgment_version": 1,
            "judgments": [{**grade, "missed": False}],
        },
    )
    file = tmp_path / "set.json"
    written = project.call("export_evaluation_set", path=str(file))
    assert written == {"case_count": 1}
    inline = project.call("export_evaluation_set", case_ids=[case_id])["fixture"]
    on_disk = json.loads(file.read_text("utf-8"))
    assert {**inline, "exported_at": ""} == {**on_disk, "exported_at": ""}
    other = Resident(tmp_path / "other")
    try:
        there = other.client()
        done = there.call("import_evaluation_set", {"path": str(file)})
        assert done == {"imported": [case_id], "unchanged": []}
        again = there.call("import_evaluation_set", {"fixture": inline})
        assert again == {"imported": [], "unchanged": [case_id]}
        exported = there.call("export_evaluation_set", {"case_ids": [case_id]})["fixture"]
        assert exported["report"] == inline["report"]
        assert exported["cases"] == inline["cases"]
    finally:
        assert other.end() == 0


@pytest.mark.parametrize(
    "payload", [{}, {"path": "relative.json"}, {"fixture": {"version": 2}}, {"path": "/none.json"}]
)
def test_what_is_no_fixture_is_refused(project: Project, payload: dict[str, Any]) -> None:
    with pytest.raises((InvalidRequest, NotFound)):
        project.client.call("import_evaluation_set", payload)


def test_replay_shows_what_changed_rank_and_makes_no_run(project: Project) -> None:
    run_id = project.activate(QUERY)["run_id"]
    same = project.client.call("replay_retrieval_run", {"run_id": run_id})
    assert (same["same_memory"], same["changes"]) == (True, [])
    project.create("zanzibar.md", f"# {QUERY}\n\n{QUERY}: call Amina.\n")
    changed = project.client.call("replay_retrieval_run", {"run_id": run_id})
    assert not changed["same_memory"]
    [new] = [change for change in changed["changes"] if change["path"] == "zanzibar.md"]
    assert new["after_rank"] == 1
    assert "before_rank" not in new
    assert new["after_selected"]
    assert not new["before_selected"]
    assert len(project.call("list_retrieval_runs")["runs"]) == 1


def test_history_survives_a_restart_and_a_killed_activation_is_closed(tmp_path: Path) -> None:
    """Killed while a run is `running`; a kill that came too late is tried again."""
    files = {f"n{n}.md": f"# Note {n}\n\nA release note about release {n}.\n" for n in range(40)}
    running = Resident(tmp_path / "d")
    project = running.project(tmp_path / "work", files)
    kept = project.activate("release 7")["run_id"]
    project_id = project.project_id
    codes: list[str | None] = []
    for _ in range(10):
        database = running.places.root / "local.db"
        thread = threading.Thread(target=_ask_and_be_cut_off, args=(project,))
        thread.start()
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            _wait_for_a_running_run(connection)
        running.end(signal.SIGKILL)
        thread.join()
        running = Resident(tmp_path / "d")
        project = Project(running.client(), project_id)
        runs = project.call("list_retrieval_runs")["runs"]
        codes = [run.get("error_code") for run in runs]
        assert "running" not in {run["status"] for run in runs}
        assert kept in {run["run_id"] for run in runs}
        if "retrieval_interrupted" in codes:
            break
    assert "retrieval_interrupted" in codes
    assert running.end() == 0


def _wait_for_a_running_run(connection: sqlite3.Connection) -> None:
    sql = "SELECT count(*) FROM retrieval_runs WHERE status = 'running'"
    wait_for(lambda: connection.execute(sql).fetchone()[0], "a running run")


def _ask_and_be_cut_off(project: Project) -> None:
    with suppress(ClumsiesError):
        project.activate("which release note is about release 12")


def test_bodies_are_private_and_beside_the_database(project: Project, resident: Resident) -> None:
    detail = of_run(project, project.activate(QUERY)["run_id"])
    for resource in detail["resources"]:
        digits = resource["content_hash"].removeprefix("sha256:")
        place = resident.places.root / BLOB_FOLDER / digits[:2] / digits
        assert place.stat().st_mode & 0o777 == 0o600
        assert place.read_text("utf-8") == FILES[resource["path"]]
