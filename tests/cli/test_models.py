"""`clumsies models`: the functions behind it on a profile of kilobytes and a real server, the
commands themselves in processes of their own."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clumsies.cli import models
from clumsies.config import HubSettings
from clumsies.errors import NotReady
from clumsies.files import FileLock
from clumsies.models.manifest import MULTILINGUAL
from clumsies.models.preparation import ModelStore
from clumsies.models.status import part_of
from tests.cli.test_search import run
from tests.models import fault_server as faults
from tests.models.fault_server import FaultServer
from tests.models.tiny_profile import contents, profile_of, url_path

BODIES = contents()
PROFILE = profile_of(BODIES)
GRAPH = "onnx/model.onnx"
MODEL = url_path("embedder", GRAPH)
SIZE = len(BODIES["embedder"][GRAPH])
REPOSITORY = Path(__file__).resolve().parents[2]
WAIT_S = 60.0


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    monkeypatch.setenv("NO_PROXY", "*")
    with FaultServer() as running:
        for role, files in BODIES.items():
            for path, body in files.items():
                running.files[url_path(role, path)] = body
        yield running


@pytest.fixture
def store(tmp_path: Path, server: FaultServer) -> ModelStore:
    return ModelStore(tmp_path / "models", PROFILE, HubSettings(server.endpoint))


@pytest.fixture
def nowhere() -> Iterator[dict[str, str]]:
    """Settings whose endpoint nobody listens at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield {"HF_ENDPOINT": f"http://127.0.0.1:{taken.getsockname()[1]}", "NO_PROXY": "*"}


def prepared(server: FaultServer, root: Path, *, attempts: int = 1, as_json: bool = False) -> int:
    """`prepare` without its pauses."""
    return models.prepare_store(
        lambda wait: ModelStore(
            root,
            PROFILE,
            HubSettings(server.endpoint),
            wait=lambda cancel, _: wait(cancel, 0.0),
        ),
        attempts,
        as_json,
    )


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(capsys.readouterr().out)
    return body


# prepare


def test_prepare_names_each_file_and_ends_ready(
    tmp_path: Path, server: FaultServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepared(server, tmp_path) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    for words in (GRAPH, "tokenizer.json", "model.onnx (0.0 MB)", "tiny is ready"):
        assert words in shown.err
    assert prepared(server, tmp_path, as_json=True) == 0
    body = printed(capsys)
    assert (body["state"], body["downloaded_bytes"]) == ("ready", PROFILE.total_bytes)
    assert len(server.requests) == 3


def test_prepare_says_why_it_waits_and_goes_on(
    tmp_path: Path, server: FaultServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.plan(MODEL, faults.status(503))
    assert prepared(server, tmp_path, attempts=2) == 0
    shown = capsys.readouterr().err
    assert f"answered 503 for {GRAPH}" in shown
    assert "trying again in" in shown


def test_prepare_that_gives_up_keeps_what_it_has_and_says_how_to_go_on(
    tmp_path: Path, server: FaultServer
) -> None:
    server.plan(MODEL, faults.cut(20_000))
    with pytest.raises(NotReady) as ended:
        prepared(server, tmp_path)
    assert ended.value.code == "search_model_unavailable"
    assert ended.value.details["downloaded_bytes"] == 20_000
    assert ended.value.details["cause"] == "connection"
    for words in ("clumsies models prepare tiny", "HF_ENDPOINT", GRAPH):
        assert words in ended.value.message
    assert prepared(server, tmp_path) == 0
    assert server.ranges(MODEL) == [None, "bytes=20000-"]


def test_prepare_beside_another_process_waits_for_it(
    tmp_path: Path, server: FaultServer, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = FileLock(tmp_path / "tiny.lock")
    assert lock.try_acquire()
    timer = threading.Timer(0.5, lock.release)
    timer.start()
    assert prepared(server, tmp_path) == 0
    timer.join()
    assert "another process" in capsys.readouterr().err


def child(root: Path, server: FaultServer, stderr: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cli.prepare_child", str(root), server.endpoint],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "NO_PROXY": "*"},
    )


def test_ctrl_c_keeps_what_was_fetched_and_the_next_call_goes_on(
    tmp_path: Path, server: FaultServer
) -> None:
    server.plan(MODEL, faults.stall(12_345))
    running = child(tmp_path, server, subprocess.PIPE)
    assert server.sent_enough.wait(WAIT_S)
    place = ModelStore(tmp_path, PROFILE, HubSettings()).path("embedder", GRAPH)
    waited = threading.Event()
    for _ in range(int(WAIT_S / 0.02)):
        if part_of(place).exists() and part_of(place).stat().st_size == 12_345:
            break
        waited.wait(0.02)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=WAIT_S)

    assert running.returncode == 3
    assert "Traceback" not in err
    assert "clumsies models prepare tiny" in err
    body = json.loads(out)
    assert (body["state"], body["downloaded_bytes"]) == ("missing", 12_345)
    assert part_of(place).read_bytes() == BODIES["embedder"][GRAPH][:12_345]
    assert prepared(server, tmp_path) == 0
    assert server.ranges(MODEL) == [None, "bytes=12345-"]


def test_ctrl_c_does_not_wait_for_a_server_that_never_answers(
    tmp_path: Path, server: FaultServer
) -> None:
    server.plan(MODEL, faults.never_answer)
    running = child(tmp_path, server, subprocess.PIPE)
    assert server.sent_enough.wait(WAIT_S)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=WAIT_S)
    assert running.returncode == 3
    assert "Traceback" not in err
    assert json.loads(out)["state"] == "missing"
    assert not server.release.is_set()


def test_a_terminal_shows_a_bar_for_the_file_and_for_all(
    tmp_path: Path, server: FaultServer
) -> None:
    ours, theirs = pty.openpty()
    running = child(tmp_path, server, theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            chunk = os.read(ours, 65_536)
        except OSError:  # Linux says so when the other end is closed.
            break
        if not chunk:
            break
        shown += chunk
    out, _ = running.communicate(timeout=WAIT_S)
    os.close(ours)
    assert running.returncode == 0
    assert json.loads(out)["state"] == "ready"
    text = shown.decode("utf-8")
    for words in ("all files", "━", "60.0/60.0 kB"):
        assert words in text
    assert any(name in text for name in (GRAPH, "tokenizer.json"))


# status, verify, path


def test_status_follows_the_files(
    store: ModelStore, server: FaultServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert models.show_status([store], None, PROFILE, True) == 3
    (found,) = printed(capsys)["profiles"]
    assert (found["state"], found["downloaded_bytes"]) == ("missing", 0)
    assert found["remedy"] == "clumsies models prepare tiny"

    server.plan(MODEL, faults.html)
    with pytest.raises(NotReady):
        store.prepare(attempts=1)
    assert models.show_status([store], PROFILE, PROFILE, True) == 1
    (found,) = printed(capsys)["profiles"]
    assert (found["state"], found["code"], found["chosen"]) == ("failed", "wrong_content", True)
    assert models.show_status([store], PROFILE, PROFILE, False) == 1
    assert "a web page" in capsys.readouterr().out

    store.prepare(attempts=1)
    assert models.show_status([store], None, PROFILE, False) == 0
    assert "ready" in capsys.readouterr().out


def test_verify_names_each_wrong_file_with_both_sizes_and_what_mends_it(
    store: ModelStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert models.verify_store(store, True) == 3
    missing = printed(capsys)
    assert {problem["kind"] for problem in missing["problems"]} == {"missing"}

    store.prepare(attempts=1)
    assert models.verify_store(store, False) == 0
    assert "every file" in capsys.readouterr().out

    graph, tokenizer = (store.path("embedder", name) for name in (GRAPH, "tokenizer.json"))
    graph.write_bytes(graph.read_bytes()[:100])
    tokenizer.write_bytes(tokenizer.read_bytes()[::-1])
    assert models.verify_store(store, False) == 1
    shown = capsys.readouterr().out
    assert f"truncated: {graph} has 100 of its {SIZE} bytes" in shown
    assert f"foreign: {tokenizer} has other bytes than the pinned file (both 3000 bytes)" in shown
    assert "run `clumsies models prepare tiny`" in shown
    assert models.verify_store(store, True) == 1
    body = printed(capsys)
    assert body["ok"] is False
    assert [(p["kind"], p["actual_size"], p["expected_size"]) for p in body["problems"]] == [
        ("truncated", 100, SIZE),
        ("foreign", 3_000, 3_000),
    ]
    assert body["remedy"] == "clumsies models prepare tiny"
    store.prepare(attempts=1)
    assert models.verify_store(store, True) == 0


def test_path_gives_what_an_installation_by_hand_needs(
    tmp_path: Path, store: ModelStore, capsys: pytest.CaptureFixture[str]
) -> None:
    models.show_path(store, False, True)
    body = printed(capsys)
    for file in body["files"]:
        place = Path(file["path"])
        assert file["source"].startswith("https://")
        role = "embedder" if "embedder" in file["path"] else "reranker"
        content = BODIES[role]["/".join(place.relative_to(store.root).parts[2:])]
        assert len(content) == file["size_bytes"]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    assert models.verify_store(store, True) == 0
    capsys.readouterr()
    models.show_path(store, True, False)
    assert body["files"][0]["sha256"] in capsys.readouterr().out


# The commands


def test_status_of_the_profiles_that_there_are(tmp_path: Path, nowhere: dict[str, str]) -> None:
    every = run("models", "status", "--json", home=tmp_path, env=nowhere)
    assert every.returncode == 0
    body = json.loads(every.stdout)
    states = {each["profile"]: each["state"] for each in body["profiles"]}
    assert states == {"multilingual": "missing", "compact": "ready"}
    one = run("models", "status", "multilingual", home=tmp_path, env=nowhere)
    assert one.returncode == 3
    assert "0.0 MB of 431.8 MB" in one.stdout
    assert "clumsies models prepare multilingual" in one.stdout
    assert list(tmp_path.iterdir()) == []


def test_prepare_without_a_network_ends_with_three(tmp_path: Path, nowhere: dict[str, str]) -> None:
    arguments = ("models", "prepare", "multilingual", "--attempts", "1", "--json")
    result = run(*arguments, home=tmp_path, env=nowhere)
    assert result.returncode == 3
    error = json.loads(result.stderr.splitlines()[-1])["error"]
    assert error["code"] == "search_model_unavailable"
    assert error["details"]["total_bytes"] == MULTILINGUAL.total_bytes
    bad = run(*arguments, home=tmp_path, env={"HF_ENDPOINT": "ftp://x"})
    assert bad.returncode == 2
    assert "HF_ENDPOINT" in bad.stderr


def test_the_packaged_profile_is_verified_and_prepared_at_once(tmp_path: Path) -> None:
    assert run("models", "verify", "compact", home=tmp_path).returncode == 0
    result = run("models", "prepare", "compact", "--json", home=tmp_path)
    assert result.returncode == 0
    assert json.loads(result.stdout)["state"] == "ready"


def test_use_is_what_search_uses_until_the_environment_says_otherwise(
    tmp_path: Path, nowhere: dict[str, str]
) -> None:
    home, notes = tmp_path / "home", tmp_path / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("# Roll back\n\nUse the previous tag.\n")
    search = ("search", "roll back", "--in", str(notes), "--json")

    used = run("models", "use", "multilingual", "--json", home=home, env=nowhere)
    assert used.returncode == 0
    body = json.loads(used.stdout)
    assert (body["profile"], body["state"], body["effective"]) == (
        "multilingual",
        "missing",
        "multilingual",
    )
    settings = Path(body["config"])
    assert settings.stat().st_mode & 0o777 == 0o600
    assert settings.parent.stat().st_mode & 0o777 == 0o700
    refused = run(*search, home=home, env=nowhere)
    assert refused.returncode == 3
    error = json.loads(refused.stderr.splitlines()[-1])["error"]
    assert error["code"] == "search_model_unavailable"
    assert "clumsies models prepare multilingual" in error["message"]

    compact = run(*search, home=home, env={"CLUMSIES_MODEL_PROFILE": "compact"})
    assert json.loads(compact.stdout)["profile"] == "compact"
    warned = run(
        "models", "use", "multilingual", home=home, env={"CLUMSIES_MODEL_PROFILE": "compact"}
    )
    assert "CLUMSIES_MODEL_PROFILE" in warned.stderr
    assert run("models", "use", "compact", home=home).returncode == 0
    assert run("models", "status", home=home).stdout.splitlines()[-1].startswith("* compact")
    assert json.loads(run(*search, home=home).stdout)["profile"] == "compact"


def test_settings_that_cannot_be_understood_are_named_with_their_line(tmp_path: Path) -> None:
    settings = tmp_path / "config" / "config.toml"
    settings.parent.mkdir()
    settings.write_text('theme = "dark"\nmodel_profile = \n')
    for arguments in (("models", "status"), ("models", "use", "compact"), ("search", "x")):
        result = run(*arguments, "--json", home=tmp_path)
        assert result.returncode == 2
        error = json.loads(result.stderr.splitlines()[-1])["error"]
        assert error["code"] == "invalid_config"
        assert f"{settings}, line 2" in error["message"]
    assert settings.read_text().startswith("theme")


def test_a_profile_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    for command in ("status", "prepare", "use", "verify", "path"):
        result = run("models", command, "nonesuch", home=tmp_path)
        assert result.returncode == 2
        assert "compact, multilingual" in result.stderr
    assert run("models", "use", home=tmp_path).returncode == 2
