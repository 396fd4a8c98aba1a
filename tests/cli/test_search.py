"""The command line as a person and a program meet it: real processes, real files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clumsies.cli.search import index_directory


def run(
    *arguments: str, home: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "CLUMSIES_HOME": str(home), "NO_COLOR": "1", **(env or {})}
    return subprocess.run(
        [sys.executable, "-m", "clumsies", *arguments],
        check=False,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=variables,
        timeout=300,
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "rules").mkdir(parents=True)
    (folder / "rules" / "money.md").write_text(
        "# Money\n\nAmounts are integers. Never use floating point for prices.\n"
    )
    (folder / "deploy.md").write_text(
        "# Roll back a release\n\nRun the rollback job with the previous tag.\n"
    )
    (folder / "重跑.md").write_text("# 重跑对账任务\n\n文件晚到时,重跑gen-itgc后50条。\n")
    return folder


def answer(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.returncode == 0, result.stderr
    body: dict[str, Any] = json.loads(result.stdout)
    return body


def test_search_prints_one_json_object_with_ranked_fragments(notes: Path, home: Path) -> None:
    body = answer(
        run("search", "undo the last deployment", "--in", str(notes), "--json", home=home)
    )
    first = body["fragments"][0]
    assert first["path"] == "deploy.md"
    assert first["action"] == "add"
    assert "rollback job" in first["content"]
    assert [fragment["rank"] for fragment in body["fragments"]] == list(
        range(1, len(body["fragments"]) + 1)
    )
    assert {"index_revision", "profile", "next_state", "removed", "skipped"} <= body.keys()


def test_an_edit_is_found_by_the_next_call_and_a_deletion_is_gone(notes: Path, home: Path) -> None:
    arguments = ("search", "which colour has the emergency lever", "--in", str(notes), "--json")
    before = answer(run(*arguments, home=home))
    note = notes / "lever.md"
    note.write_text("# Emergency lever\n\nThe emergency lever is painted orange.\n")
    after = answer(run(*arguments, home=home))
    assert after["fragments"][0]["path"] == "lever.md"
    note.unlink()
    gone = answer(run(*arguments, home=home))
    assert gone["index_revision"] == before["index_revision"]
    assert all(fragment["path"] != "lever.md" for fragment in gone["fragments"])


def test_an_unreadable_edit_keeps_what_was_indexed_before(notes: Path, home: Path) -> None:
    arguments = ("search", "floating point prices", "--in", str(notes), "--json")
    answer(run(*arguments, home=home))
    (notes / "rules" / "money.md").write_bytes(b"\xff\xfe broken")
    result = run(*arguments, home=home)
    assert answer(result)["fragments"][0]["path"] == "rules/money.md"
    assert "is not UTF-8" in result.stderr
    assert "as it was" in result.stderr


def test_chinese_is_searched_and_the_answer_says_what_was_skipped(notes: Path, home: Path) -> None:
    result = run("search", "文件晚到要不要重跑", "--in", str(notes), "--json", home=home)
    body = answer(result)
    assert body["fragments"][0]["path"] == "重跑.md"
    assert {"stage": "vector", "reason": "script"} in body["skipped"]


@pytest.mark.parametrize(
    "query", ["why?", '"', "(", "NEAR(", "*", "AND", "@nasa", "#tag", "a=b", "--", "ünï'; DROP"]
)
def test_no_query_breaks_the_command(notes: Path, home: Path, query: str) -> None:
    answer(run("search", "--in", str(notes), "--json", "--", query, home=home))


def test_people_see_places_and_text_and_programs_see_no_colour(notes: Path, home: Path) -> None:
    result = run("search", "prices", "--in", str(notes), home=home)
    assert result.returncode == 0
    assert "rules/money.md" in result.stdout
    assert "Never use floating point" in result.stdout
    assert "\x1b[" not in result.stdout + result.stderr
    assert "profile compact" in result.stderr


def test_a_page_that_another_replaces_says_so(tmp_path: Path, home: Path) -> None:
    (tmp_path / "old.md").write_text(
        "# Prices\n\nSuperseded by [it](new.md).\n\nPrices are floats.\n"
    )
    (tmp_path / "new.md").write_text("# Amounts\n\nThe prices of now are integers.\n")
    query = ("search", "prices are floats", "--in", str(tmp_path))
    fragments = answer(run(*query, "--json", home=home))["fragments"]
    assert [(f["path"], f.get("superseded_by")) for f in fragments] == [
        ("new.md", None),
        ("old.md", "new.md"),
    ]
    shown = run(*query, home=home).stdout
    assert "   superseded by new.md\n" in shown
    explained = run(*query, "--explain", home=home, env={"COLUMNS": "160"}).stdout
    assert "(superseded by" in explained


def test_explain_shows_every_candidate_with_its_outcome(notes: Path, home: Path) -> None:
    result = run("search", "rollback", "--in", str(notes), "--explain", home=home)
    assert "BM25" in result.stdout
    assert "selected" in result.stdout
    body = answer(run("search", "rollback", "--in", str(notes), "--explain", "--json", home=home))
    assert body["candidates"][0]["exclusion_reason"] == "selected"
    assert {"bm25_rank", "vector_rank", "rrf_rank", "reranker_logit"} <= body["candidates"][
        0
    ].keys()


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "cp1252"}])
def test_a_poor_locale_still_gets_text(notes: Path, home: Path, locale: dict[str, str]) -> None:
    result = run("search", "重跑", "--in", str(notes), "--json", home=home, env=locale)
    assert answer(result)["fragments"][0]["path"] == "重跑.md"
    assert run("search", "重跑", "--in", str(notes), home=home, env=locale).returncode == 0


def test_what_is_missing_is_named_with_its_exit_code(tmp_path: Path, home: Path) -> None:
    missing = run("search", "x", "--in", str(tmp_path / "nowhere"), home=home)
    assert missing.returncode == 5
    assert "no directory" in missing.stderr
    (tmp_path / "empty").mkdir()
    empty = run("search", "x", "--in", str(tmp_path / "empty"), home=home)
    assert empty.returncode == 5
    assert "no Markdown" in empty.stderr
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.md").write_bytes(b"\xff")
    bad = run("search", "x", "--in", str(tmp_path / "bad"), "--json", home=home)
    assert bad.returncode == 1
    assert json.loads(bad.stderr.splitlines()[-1])["error"]["code"] == "io_error"


def test_usage_errors_are_two(notes: Path, home: Path) -> None:
    assert run("search", home=home).returncode == 2
    assert run("search", "  ", "--in", str(notes), home=home).returncode == 2
    unknown = run("search", "x", "--in", str(notes), "--profile", "nonesuch", home=home)
    assert unknown.returncode == 2
    assert "compact" in unknown.stderr


def test_a_file_over_the_limit_is_left_out_with_the_limit_named(notes: Path, home: Path) -> None:
    (notes / "huge.md").write_bytes(b"word " * (2 * 1024 * 1024))
    result = run("search", "rollback", "--in", str(notes), "--json", home=home)
    assert "8 MiB" in result.stderr
    assert answer(result)["fragments"][0]["path"] == "deploy.md"


def test_a_broken_index_is_built_anew_with_a_word(
    notes: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("search", "rollback", "--in", str(notes), "--json")
    answer(run(*arguments, home=home))
    monkeypatch.setenv("CLUMSIES_HOME", str(home))
    database = index_directory(notes) / "index.sqlite"
    assert database.stat().st_mode & 0o777 == 0o600
    assert database.parent.stat().st_mode & 0o777 == 0o700
    database.write_bytes(b"this is no database" * 1000)
    result = run(*arguments, home=home)
    assert "damaged" in result.stderr
    assert answer(result)["fragments"][0]["path"] == "deploy.md"


def test_version_and_help(home: Path) -> None:
    assert run("--version", home=home).stdout.startswith("clumsies ")
    shown = run("--help", home=home)
    assert shown.returncode == 0
    assert "search" in shown.stdout
    assert "Exit codes" in shown.stdout
    assert "--install-completion" in shown.stdout
