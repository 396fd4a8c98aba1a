"""`clumsies history` and `clumsies eval` as people use them, each command a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.resident import Resident, resident_environment

FILES = {
    "deploy.md": "# Deploy\n\n## Undo\n\nRoll back a release with shipctl undo.\n",
    "lunch.md": "# Lunch\n\nSoup is served on Mondays.\n",
    "oncall.md": "# On call\n\nWhoever is on call decides whether to undo.\n",
}
QUERY = "how do we roll back a release"


class Commands:
    """Commands in a bound directory, against a running daemon."""

    def __init__(self, home: Path, directory: Path):
        self.resident = Resident(home)
        self.project = self.resident.project(directory, FILES)
        self.directory = directory

    def __call__(self, *arguments: str, status: int = 0) -> str:
        done = run(self.resident.environment, self.directory, *arguments)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stdout + done.stderr

    def json(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self(*arguments, "--json"))
        return found


def run(
    environment: dict[str, str], directory: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "clumsies", *arguments],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    root = tmp_path_factory.mktemp("cli")
    made = Commands(root / "home", root / "work")
    yield made
    assert made.resident.end() == 0


def test_the_table_of_a_run_has_every_stage_and_the_outcome(commands: Commands) -> None:
    answer = commands.json("activate", QUERY)
    shown = commands("history", "show", answer["run_id"])
    for heading in ("exact", "BM25", "vector", "RRF", "rerank", "relev.", "final", "outcome"):
        assert heading in shown
    lines = [line.split() for line in shown.splitlines()]
    assert any("deploy.md" in line and "selected" in line and "add" in line for line in lines)
    assert any("below_relevance" in line for line in lines)
    assert QUERY in shown
    listed = commands("history", "list")
    assert answer["run_id"] in listed
    assert QUERY in listed
    latest = commands.json("history", "show")
    assert latest["run"]["run_id"] == answer["run_id"]


def test_a_wrong_answer_is_a_fixture_in_one_command_and_runs_elsewhere(
    commands: Commands, tmp_path: Path
) -> None:
    commands("activate", QUERY)
    case = commands.json(
        "eval", "add", "--grade", "1=3", "--missed", "oncall.md=2", "--export", str(tmp_path / "f")
    )
    assert [(j["relevance"], j["missed"]) for j in case["judgments"]] == [(3, False), (2, True)]
    elsewhere = resident_environment(tmp_path)
    again = run(elsewhere, tmp_path, "eval", "run", "f", "--json", "--write", "now.json")
    assert again.returncode == 0, again.stderr
    body = json.loads(again.stdout)
    assert body["report"]["mean"] == body["recorded"]["mean"] == case["report"]["mean"]
    assert json.loads((tmp_path / "now.json").read_text()) == body
    table = run(elsewhere, tmp_path, "eval", "run", "f").stdout
    for variant in ("b1_bm25", "b2_dense_vector", "b3_hybrid_rrf", "b4_reranked"):
        assert table.count(variant) == 2
    same = run(elsewhere, tmp_path, "eval", "compare", "f", "now.json", "--threshold", "0.01")
    assert same.returncode == 0, same.stdout + same.stderr
    body["report"]["mean"]["b4_reranked"]["ndcg_at_10"] -= 0.2
    (tmp_path / "worse.json").write_text(json.dumps(body))
    worse = run(elsewhere, tmp_path, "eval", "compare", "f", "worse.json", "--threshold", "0.1")
    assert worse.returncode == 1
    assert "lost" in worse.stdout
    better = run(elsewhere, tmp_path, "eval", "compare", "worse.json", "f")
    assert better.returncode == 0
    scored = subprocess.run(
        [sys.executable, "-P", "-m", "evaluation", "fixture", str(tmp_path / "f"), "--stored",
         "--json"],
        env=elsewhere, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert json.loads(scored.stdout)["variants"]["b4_reranked"]["mrr_at_10"] == 1.0


def test_grades_are_added_or_given_anew(commands: Commands) -> None:
    commands("activate", QUERY)
    case_id = commands.json("eval", "add")["evaluation_case"]["case_id"]
    commands("eval", "judge", case_id, "--grade", "1=3")
    case = commands.json("eval", "judge", case_id, "--grade", "2=0", "--category", "howto")
    assert sorted(j["relevance"] for j in case["judgments"]) == [0, 3]
    assert case["evaluation_case"]["query_category"] == "howto"
    case = commands.json("eval", "judge", case_id, "--grade", "1=1", "--anew")
    assert [j["relevance"] for j in case["judgments"]] == [1]
    shown = commands("eval", "show", case_id)
    assert "grade 1" in shown
    assert "look at" in shown
    assert case_id in commands("eval", "list")


def test_a_case_is_removed_when_somebody_says_yes(commands: Commands) -> None:
    commands("activate", QUERY)
    case_id = commands.json("eval", "add", "--grade", "1=3")["evaluation_case"]["case_id"]
    commands("eval", "remove", case_id, status=1)
    assert case_id in commands("eval", "list")
    assert case_id in commands("eval", "remove", case_id, "--yes")
    assert case_id not in commands("eval", "list")
    assert "not_found" in commands("eval", "remove", case_id, "--yes", status=5)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--grade", "1"],
        ["--grade", "1=4"],
        ["--grade", "99=1"],
        ["--missed", "none.md=1"],
        ["--missed", "lunch.md=x"],
    ],
)
def test_a_grade_that_means_nothing_is_refused(commands: Commands, arguments: list[str]) -> None:
    commands("activate", QUERY)
    case_id = commands.json("eval", "add")["evaluation_case"]["case_id"]
    assert "invalid_request" in commands("eval", "judge", case_id, *arguments, status=2)


def test_replay_shows_what_changed(commands: Commands) -> None:
    commands("history", "clear", "--yes")
    commands("activate", "who decides whether to undo")
    assert "unchanged" in commands("history", "replay", "--limit", "1")
    commands.project.create("undo.md", "# who decides whether to undo\n\nThe release captain.\n")
    shown = commands("history", "replay", "--limit", "1")
    assert "the memory changed" in shown
    assert "undo.md" in shown


def test_fixtures_go_out_and_come_in(commands: Commands, tmp_path: Path) -> None:
    commands("activate", QUERY)
    commands("eval", "add")
    file = tmp_path / "all.json"
    assert "Wrote" in commands("eval", "export", str(file))
    assert "were here already" in commands("eval", "import", str(file))
    assert "not_found" in commands("eval", "import", str(tmp_path / "none"), status=5)
    assert "invalid_request" in commands("eval", "export", str(file), "--case", "x", status=2)


def test_clearing_asks_unless_told_not_to(commands: Commands) -> None:
    commands("activate", QUERY)
    commands("history", "clear", status=1)
    kept = commands.json("history", "list")["runs"]
    assert kept
    assert "Removed" in commands("history", "clear", "--yes")
    assert len(commands.json("history", "list")["runs"]) < len(kept)


def test_a_file_without_a_report_is_no_comparison(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("{}")
    done = run(resident_environment(tmp_path), tmp_path, "eval", "compare", "x", "x")
    assert done.returncode == 2
    assert "holds no report" in done.stderr


def test_commands_about_history_load_neither_engine_nor_database() -> None:
    code = (
        "import sys, clumsies.cli.history, clumsies.cli.evaluation\n"
        "print([m for m in ('numpy', 'apsw', 'onnxruntime', 'httpx') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
