"""Log files: bounded, private, and unable to hold what must not be logged."""

from __future__ import annotations

import json
import logging
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clumsies.errors import IoFailed, NotReady
from clumsies.logs import (
    SAFE_FIELDS,
    EventLog,
    LogFile,
    WorkerLog,
    adopt_library_logs,
    failure_of,
    route_of,
)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def event_log(path: Path) -> EventLog:
    return EventLog(LogFile(path), clock=lambda: datetime(2026, 1, 2, 3, 4, 5, 6000, UTC))


def test_an_event_on_disk(tmp_path: Path) -> None:
    log = event_log(tmp_path / "daemon.log")
    log.emit("ipc_completed", method="health", request_id="req_1", elapsed_ms=1.23456, status=None)
    text = (tmp_path / "daemon.log").read_text()
    pid = json.loads(text)["pid"]
    assert text == (
        '{"elapsed_ms":1.235,"event":"ipc_completed","level":"info","method":"health",'
        f'"pid":{pid},"request_id":"req_1","time":"2026-01-02T03:04:05.006Z"}}\n'
    )


def test_files_rotate_are_private_and_stay_bounded(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    file = LogFile(path, limit_bytes=1000)
    for number in range(200):
        file.write(b'{"n":%03d,"pad":"%s"}' % (number, b"x" * 80))
    names = ["daemon.log", "daemon.log.1", "daemon.log.2", "daemon.log.3"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    kept = [line["n"] for name in reversed(names) for line in lines(tmp_path / name)]
    assert kept == list(range(200 - len(kept), 200))
    for name in names:
        found = (tmp_path / name).stat()
        assert found.st_size <= 1000
        assert stat.S_IMODE(found.st_mode) == 0o600


def test_an_oversized_old_file_is_cut_to_its_last_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    for name in ("daemon.log", "daemon.log.2"):
        (tmp_path / name).write_text("".join(f'{{"n":{n}}}\n' for n in range(1000)))
        (tmp_path / name).chmod(0o644)
    LogFile(path, limit_bytes=500).write(b'{"n":1000}')
    for name in ("daemon.log.1", "daemon.log.3"):  # Each moved on by one.
        kept = [line["n"] for line in lines(tmp_path / name)]
        assert len(kept) > 40
        assert kept == list(range(1000 - len(kept), 1000))
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert lines(path) == [{"n": 1000}]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_event_over_the_limit_becomes_a_marker(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "daemon.log", limit_bytes=200)
    file.write(b"x" * 300)
    assert lines(tmp_path / "daemon.log") == [{"event": "log_event_too_large", "size_bytes": 301}]


def test_a_failed_file_is_reported_once_until_it_works_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "logs"
    file = LogFile(folder / "daemon.log")
    for _ in range(3):
        file.write(b"{}")
    assert capfd.readouterr().err.count("cannot write daemon.log") == 1
    folder.mkdir()
    file.write(b"{}")
    assert (folder / "daemon.log").read_text() == "{}\n"
    file.close()
    (folder / "daemon.log").unlink()
    (folder / "daemon.log").mkdir()
    file.write(b"{}")
    assert capfd.readouterr().err.count("cannot write daemon.log") == 1


def test_a_symlink_is_not_followed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").write_text("kept")
    (tmp_path / "daemon.log").symlink_to(tmp_path / "other")
    LogFile(tmp_path / "daemon.log").write(b"{}")
    assert (tmp_path / "other").read_text() == "kept"
    assert "cannot write" in capfd.readouterr().err


def test_a_field_that_is_not_listed_is_a_fault_of_the_code(tmp_path: Path) -> None:
    log = event_log(tmp_path / "daemon.log")
    for fields in ({"query": "x"}, {"message": "x"}, {"path": "x"}):
        with pytest.raises(ValueError, match="not loggable"):
            log.emit("ipc_failed", **fields)  # type: ignore[arg-type]
    assert (tmp_path / "daemon.log").read_text() == ""


@given(st.sampled_from(sorted(SAFE_FIELDS)), st.text(min_size=1).map(lambda text: f"ein {text}"))
def test_no_field_takes_free_text(name: str, text: str) -> None:
    assert text not in json.dumps(SAFE_FIELDS[name](text))
    assert text not in json.dumps(SAFE_FIELDS[name]({"kind": text}))
    assert text not in json.dumps(SAFE_FIELDS[name](({"kind": text, "os_code": text},)))


def test_an_error_is_logged_without_its_text() -> None:
    secret = "https://user:password@example.org/marmalade"
    try:
        try:
            raise PermissionError(13, secret, secret)
        except OSError as cause:
            raise IoFailed("io_error", secret) from cause
    except IoFailed as error:
        found = failure_of(error)
    assert found.fields() == {
        "kind": "io",
        "error_code": "io_error",
        "causes": ({"kind": "io", "os_code": 13},),
    }
    assert failure_of(RuntimeError(secret)).fields() == {
        "kind": "application",
        "error_code": "RuntimeError",
    }
    assert failure_of(ConnectionRefusedError(111, secret)).kind == "connect"
    assert failure_of(TimeoutError(secret)).kind == "timeout"


def test_a_circle_of_causes_ends() -> None:
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert len(failure_of(first).causes) == 1


def test_nine_equal_failures_and_a_new_one_are_five_lines(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    worker = WorkerLog(event_log(path), "draft_sync")
    worker.recovered()
    for _ in range(9):
        worker.failed(NotReady("daemon_busy", "text that differs"))
    worker.failed(NotReady("search_index_not_ready", "x"))
    found = lines(path)
    assert [line["count"] for line in found] == [1, 2, 4, 8, 1]
    assert {line["worker"] for line in found} == {"draft_sync"}
    worker.recovered()
    worker.recovered()
    assert [line["event"] for line in lines(path)[5:]] == ["worker_recovered"]


def test_other_packages_messages_stay_out(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    forget = adopt_library_logs(event_log(path))
    try:
        logging.getLogger("httpx").info("redirected to https://secret.example")
        try:
            raise RuntimeError("secret")
        except RuntimeError:
            logging.getLogger("some.package").exception("about a secret")
    finally:
        forget()
    assert [(line["event"], line["logger"]) for line in lines(path)] == [
        ("library_log", "some.package")
    ]
    assert "secret" not in path.read_text()


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/api/v1/drafts/draft_1/operations?token=x", "/api/v1/drafts"),
        ("/api/v1/me", "/api/v1/me"),
        ("/api/v1/secret-name/x", "/api/v1/:resource"),
        ("/api/v1", "/api/v1/:resource"),
        ("https://host/api/v1/me", "/api/v1/:resource"),
        ("", "/api/v1/:resource"),
    ],
)
def test_a_route_shows_its_family_alone(path: str, route: str) -> None:
    assert route_of(path) == route
    assert SAFE_FIELDS["route"](route) == route
