"""`clumsies doctor`: what is broken is named, with what mends it, and nothing hides the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from clumsies.cli import doctor
from clumsies.cli.doctor import Finding
from clumsies.config import HubSettings
from clumsies.errors import IoFailed
from clumsies.models.preparation import ModelStore
from tests.cli.test_search import run
from tests.models.tiny_profile import contents, profile_of

BODIES = contents()


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    """A complete profile, put there by hand."""
    found = ModelStore(tmp_path / "models", profile_of(BODIES), HubSettings(offline=True))
    for role, files in BODIES.items():
        for name, body in files.items():
            place = found.path(role, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(body)
    return found


def test_a_sound_installation_is_all_ok(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert run("models", "use", "compact", home=home).returncode == 0
    result = run("doctor", "--json", home=home)
    assert result.returncode == 0, result.stdout
    body = json.loads(result.stdout)
    assert body["ok"] is True
    assert {each["level"] for each in body["findings"]} == {"ok"}
    checks = {check.__name__.removeprefix("check_") for check in doctor.CHECKS}
    assert {each["check"] for each in body["findings"]} == checks
    text = run("doctor", home=home)
    assert text.returncode == 0
    for words in ("SQLite 3.", "FTS5", "kernels", "compact", "multilingual: missing", "numpy"):
        assert words in text.stdout


def test_what_is_broken_makes_it_fail_and_the_rest_is_still_looked_at(tmp_path: Path) -> None:
    settings = tmp_path / "config" / "config.toml"
    settings.parent.mkdir(mode=0o755)
    settings.write_text("[[[\n")
    (tmp_path / "logs").write_text("no directory")
    result = run("doctor", "--json", home=tmp_path)
    assert result.returncode == 1
    body = json.loads(result.stdout)
    failed = {each["check"]: each["message"] for each in body["findings"] if each["level"] != "ok"}
    assert f"{settings}, line 1" in failed["settings"]
    assert any("is no directory" in each["message"] for each in body["findings"])
    assert any(each["remedy"] == f"chmod 700 {settings.parent}" for each in body["findings"])
    assert body["findings"][-1]["check"] == "projects"


def test_a_wrong_file_is_named_with_sizes_and_the_command(store: ModelStore) -> None:
    (sound,) = doctor.model_findings(store, is_chosen=True)
    assert sound.level == "ok"
    graph, tokenizer = (store.path("embedder", n) for n in ("onnx/model.onnx", "tokenizer.json"))
    graph.write_bytes(b"<html>")
    tokenizer.write_bytes(tokenizer.read_bytes()[::-1])
    truncated, foreign = doctor.model_findings(store, is_chosen=False)
    assert {truncated.level, foreign.level} == {"failure"}
    assert str(graph) in truncated.message
    assert "6 of its 50000 bytes" in truncated.message
    assert f"foreign: {tokenizer}" in foreign.message
    assert truncated.remedy == foreign.remedy == "clumsies models prepare tiny"


def test_absent_models_are_a_warning_where_they_are_chosen(store: ModelStore) -> None:
    store.path("reranker", "model.onnx").unlink()
    (chosen,) = doctor.model_findings(store, is_chosen=True)
    (other,) = doctor.model_findings(store, is_chosen=False)
    assert (chosen.level, other.level) == ("warning", "ok")
    assert chosen.remedy == "clumsies models prepare tiny"
    assert "missing" in chosen.message


def test_one_check_that_fails_never_hides_another(capsys: pytest.CaptureFixture[str]) -> None:
    def check_first() -> Iterator[Finding]:
        yield Finding("first", "ok", "so far")
        raise IoFailed("io_error", "The disk said no.")

    def check_second() -> Iterator[Finding]:
        raise ZeroDivisionError
        yield

    def check_third() -> Iterator[Finding]:
        yield Finding("third", "ok", "still here")

    assert doctor.report([check_first, check_second, check_third], True) == 1
    body = json.loads(capsys.readouterr().out)
    assert [(each["check"], each["level"]) for each in body["findings"]] == [
        ("first", "ok"),
        ("first", "failure"),
        ("second", "failure"),
        ("third", "ok"),
    ]
    assert doctor.report([check_third], False) == 0
    assert "still here" in capsys.readouterr().out


def test_directories_are_judged_by_kind_and_mode(tmp_path: Path) -> None:
    place = tmp_path / "place"
    assert doctor.directory_finding("data", place).level == "ok"
    place.mkdir(mode=0o700)
    assert doctor.directory_finding("data", place).level == "ok"
    place.chmod(0o750)
    opened = doctor.directory_finding("data", place)
    assert (opened.level, opened.remedy) == ("warning", f"chmod 700 {place}")
    file = tmp_path / "file"
    file.write_text("")
    assert doctor.directory_finding("data", file).level == "failure"


def test_search_caches_are_counted_with_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUMSIES_HOME", str(tmp_path))
    (none,) = doctor.check_searches()
    assert none.message.startswith("0 search indexes")
    for name, size in (("one", 1_000_000), ("two", 2_500_000)):
        folder = tmp_path / "cache" / "searches" / name
        folder.mkdir(parents=True)
        (folder / "index.sqlite").write_bytes(bytes(size))
    (two,) = doctor.check_searches()
    assert two.message.startswith("2 search indexes, 3.5 MB, the largest 2.5 MB")
